"""How commands present themselves: verbs in groups on one screen, and an example at the end of every help page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from pennon.cli.errors import PlainErrors, settings_of

EXIT_CODES = "Exit codes: 0 done, 1 error or finding, 2 usage, 75 try again, 130 interrupted."
LABEL, NAME = 7, 15


class Verb(click.Command):
    """A command on a table. What may stand before the verb may stand after it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += [
            click.Option(["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help=DEBUG_HELP),
            click.Option(["--quiet"], is_flag=True, expose_value=False, callback=_set_quiet, help=QUIET_HELP),
        ]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write(f"\nExample:\n  {self.epilog}\n")


def verb(name: str, *, example: str, short_help: str | None = None) -> Callable[[Callable[..., Any]], Verb]:
    return click.command(name, cls=Verb, epilog=example, short_help=short_help)


DEBUG_HELP = "Show the whole trace of an error."
QUIET_HELP = "Show no progress."


class Verbs(PlainErrors):
    """The help page lists verbs by their purpose, each in one line."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.purposes: list[tuple[str, list[click.Command]]] = []

    def add_purpose(self, label: str, commands: Sequence[click.Command]) -> None:
        self.purposes.append((label, list(commands)))
        for command in commands:
            self.add_command(command)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        formatter.write(f"\n{self.help}\n\n")
        for label, commands in self.purposes:
            rows = [(command.name or "", command.get_short_help_str(limit=200)) for command in commands]
            _write_rows(formatter, label, rows)
        options = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        formatter.write("\n")
        _write_rows(formatter, "Options", options)
        formatter.write(f"\n{EXIT_CODES}\n")


def _write_rows(formatter: click.HelpFormatter, label: str, rows: Sequence[tuple[str, str]]) -> None:
    for number, (name, said) in enumerate(rows):
        formatter.write(f"{'' if number else label:{LABEL}} {name:{NAME}} {said}\n")


def _set_debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    settings_of(ctx).debug |= given


def _set_quiet(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    settings_of(ctx).quiet |= given
