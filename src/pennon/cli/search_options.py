"""The options that searches and kNN joins share: how to search, bounds of the distance, groups, and all rows within a
distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from typing import Any

import click

from pennon.cli.completion import complete_column, complete_index
from pennon.errors import InvalidArgument

REMEDY = "Write --distance-range LOWER,UPPER; leave out a bound that is open: 0.2, or ,0.5"


def search_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them; the command has `--k` of its own, and gets all of them by the names of `Table.search`."""

    @wraps(command)
    def shaped(*arguments: Any, every: bool, k: int, distance_range: str | None, **options: Any) -> None:
        options |= {"k": None if every else k, "distance_range": _bounds(distance_range)}
        command(*arguments, **options)

    options = (
        click.option("--metric", help="l2, cosine or dot.  [default: the index's]"),
        click.option("--nprobes", type=int, help="Number of partitions to search.  [default: chosen]"),
        click.option(
            "--minimum-nprobes", type=int, help="Minimum number of partitions to search.  [default: 20 to 100]"
        ),
        click.option(
            "--maximum-nprobes",
            type=int,
            help="Maximum number of partitions to search until there are k results.  [default: all]",
        ),
        click.option("--refine-factor", type=int, help="Rank k times this many candidates by their exact distances."),
        click.option(
            "--ef", type=int, help="HNSW: candidates to keep during the search.  [default: 1.5 k, at least 50]"
        ),
        click.option(
            "--prefilter/--no-prefilter",
            default=True,
            show_default=True,
            help="Apply the filter before the search, or only to its results.",
        ),
        click.option("--index", shell_complete=complete_index, help="Name of the index.  [default: chosen]"),
        click.option(
            "--recall", type=float, help="Share of the true neighbors to find; chooses the index and its settings."
        ),
        click.option(
            "--distance-range",
            metavar="LOWER,UPPER",
            help="Only distances of at least LOWER and below UPPER: 0.2,0.5 or ,0.5",
        ),
        click.option("--all", "every", is_flag=True, help="All rows within --distance-range, instead of --k."),
        click.option("--offset", type=int, default=0, help="Neighbors to skip."),
        click.option(
            "--distinct-by", shell_complete=complete_column, help="Only the nearest row for each value of this column."
        ),
    )
    return reduce(lambda inner, option: option(inner), reversed(options), shaped)


def _bounds(text: str | None) -> tuple[float | None, float | None] | None:
    if text is None:
        return None
    try:
        lower, upper = (float(bound) if bound.strip() else None for bound in text.split(","))
    except ValueError as error:
        raise InvalidArgument(f"--distance-range {text!r} is not a pair of numbers", REMEDY) from error
    return lower, upper
