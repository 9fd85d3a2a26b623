"""What commands have in common: the table they work on, how they print, and the forms of their options."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from pennon.engine import progress_for_terminal
from pennon.errors import InvalidArgument
from pennon.table import open_table

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

output_option = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print the result."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and stop.")


def on_table(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the table argument and how to reach it; the command gets an open `Table`."""

    @click.argument("uri")
    @click.option("--storage-option", "storage", multiple=True, metavar="KEY=VALUE", help="For object stores; repeat.")
    @click.pass_context
    @wraps(command)
    def opened(ctx: click.Context, uri: str, storage: tuple[str, ...], **options: Any) -> None:
        listener = None if ctx.obj["quiet"] else progress_for_terminal()
        command(open_table(uri, storage_options=_pairs(storage), progress=listener), **options)

    return opened


def duration(text: str) -> float:
    """A whole number and its unit, as seconds."""
    parts = re.fullmatch(r"(\d+)([smhd])", text, re.ASCII)
    if not parts or not int(parts[1]):
        raise click.BadParameter(f"{text!r} is no duration; write it like 30s, 10m, 2h or 1d")
    return float(int(parts[1]) * UNITS[parts[2]])


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            # The text may hold a secret, so it is not repeated.
            raise InvalidArgument("a --storage-option is not of the form KEY=VALUE")
        pairs[key] = value
    return pairs
