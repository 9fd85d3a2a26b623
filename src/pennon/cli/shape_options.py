"""The options of searches and kNN joins for bounds of the distance, groups, and all rows within a distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from typing import Any

import click

from pennon.cli.completion import complete_column
from pennon.errors import InvalidArgument

REMEDY = "Write --distance-range LOWER,UPPER; leave out a bound that is open: 0.2, or ,0.5"


def shape_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them; the command gets `k`, `distance_range`, `offset` and `distinct_by`."""

    @wraps(command)
    def shaped(*arguments: Any, every: bool, k: int, distance_range: str | None, **options: Any) -> None:
        options |= {"k": None if every else k, "distance_range": _bounds(distance_range)}
        command(*arguments, **options)

    options = (
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
