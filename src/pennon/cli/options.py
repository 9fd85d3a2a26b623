"""What commands have in common: the table they work on, how they print, and the forms of their options."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import click

from pennon.cli.completion import complete_address
from pennon.cli.errors import settings_of
from pennon.cli.progress import progress_for_terminal
from pennon.engine import ProgressListener
from pennon.engine.choice import ENGINES, VARIABLE
from pennon.errors import InvalidArgument
from pennon.query.scan.request import ColumnOrdering
from pennon.table import open_table

ENGINE_HELP = f"Where jobs run: on Spark, or in this process.  [default: {VARIABLE}, or spark]"
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

output_option = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print the result."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")


def on_table(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the table argument and how to reach it; the command gets an open `Table`."""

    @click.argument("uri", shell_complete=complete_address)
    @click.option(
        "--storage-option",
        "storage",
        multiple=True,
        metavar="KEY=VALUE",
        help="Option of the object store. Can be repeated.",
    )
    @click.option("--engine", type=click.Choice(ENGINES), help=ENGINE_HELP)
    @click.pass_context
    @wraps(command)
    def opened(ctx: click.Context, uri: str, storage: tuple[str, ...], engine: str | None, **options: Any) -> None:
        settings_of(ctx).storage = given = _pairs(storage)
        command(open_table(uri, storage_options=given, engine=engine, progress=listener() or False), **options)

    return opened


def listener() -> ProgressListener | None:
    """Where progress is shown: on the error stream, unless the user wants none. The output is for results."""
    return None if settings_of().quiet else progress_for_terminal()


def duration(text: str) -> float:
    """A whole number and its unit, as seconds."""
    parts = re.fullmatch(r"(\d+)([smhd])", text, re.ASCII)
    if not parts or not int(parts[1]):
        raise click.BadParameter(f"{text!r} is not a duration; write it like 30s, 10m, 2h or 1d")
    return float(int(parts[1]) * UNITS[parts[2]])


def names(text: str | None) -> list[str] | None:
    """Columns, as they are listed in an option: `a,b`, or a JSON list where names have commas."""
    if not text:
        return None
    try:
        listed: Any = json.loads(text) if text.startswith("[") else None
    except ValueError:
        listed = None  # a column may begin with a bracket
    if isinstance(listed, list) and all(isinstance(name, str) for name in cast(list[Any], listed)):
        return cast(list[str], listed)
    return text.split(",")


def names_or_expressions(text: str | None) -> list[str] | dict[str, str] | None:
    """Columns of a scan: names, or a JSON object of names and SQL expressions."""
    try:
        given: Any = json.loads(text) if text and text.startswith("{") else None
    except ValueError:
        given = None  # a column may begin with a brace
    return cast(dict[str, str], given) if isinstance(given, dict) else names(text)


def orderings(text: str | None) -> list[ColumnOrdering] | None:
    """Columns to sort by, as SQL writes them: `a, b desc nulls first`."""
    return None if text is None else [_ordering(part.strip()) for part in names(text) or ()]


def _ordering(text: str) -> ColumnOrdering:
    found = re.fullmatch(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", text, re.IGNORECASE | re.DOTALL)
    if found is None:
        raise InvalidArgument(f"--order-by has no column in {text!r}", "Write it like a,b desc")
    descending, first = (found[2] or "").lower() == "desc", (found[3] or "").lower() == "first"
    return ColumnOrdering(found[1], not descending, first)


def numbers(text: str | None) -> list[int] | None:
    """Ids of fragments, as they are listed in an option: `0,1,5`."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a list of fragment ids", "Write them like 0,1,5") from None


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            # The text may hold a secret, so it is not repeated.
            raise InvalidArgument("a --storage-option is not of the form KEY=VALUE")
        pairs[key] = value
    return pairs
