"""The help pages: verbs in groups on one screen, and an example at the end of every page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from pennon.cli.errors import PlainErrors, settings_of

EXIT_CODES = "Exit codes: 0 done, 1 error or finding, 2 usage, 75 try again, 130 interrupted."
LABEL, NAME = 8, 15


class Verb(click.Command):
    """A command on a table. Options of the group may also follow the verb."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += [
            click.Option(["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help=DEBUG_HELP),
            click.Option(["--quiet"], is_flag=True, expose_value=False, callback=_set_quiet, help=QUIET_HELP),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            filters = {"--filter", "--where"}.intersection(option for param in self.params for option in param.opts)
            if filters and "unexpected extra argument" in error.message:
                given = f'{error.message}. Give a filter as {filters.pop()} "user_id = 42"'
                raise click.UsageError(given, ctx) from None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        settings_of(ctx).json = ctx.params.get("output") == "json"
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write(f"\nExample:\n  {self.epilog}\n")


def verb(name: str, *, example: str) -> Callable[[Callable[..., Any]], Verb]:
    """A command with an example; its line on the help page is in `main`."""
    return click.command(name, cls=Verb, epilog=example)


DEBUG_HELP = "Show the full traceback of an error."
QUIET_HELP = "Show no progress."


@dataclass(frozen=True)
class ListedVerb:
    """A verb as the help page lists it. `module` of this package defines it under its name with underscores."""

    module: str
    name: str
    summary: str

    def load(self) -> click.Command:
        command: click.Command = getattr(import_module(f"pennon.cli.{self.module}"), self.name.replace("-", "_"))
        command.short_help = self.summary
        return command


class Verbs(PlainErrors):
    """The help page lists verbs by their purpose, each in one line, without importing their modules."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.purposes: list[tuple[str, tuple[ListedVerb, ...]]] = []
        self.commands = self._lazy = _LazyCommands()

    def add_purpose(self, label: str, *verbs: ListedVerb) -> None:
        self.purposes.append((label, verbs))
        for verb in verbs:
            self._lazy.list(verb)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        formatter.write(f"{self.help}\n\n")
        for label, verbs in self.purposes:
            _write_rows(formatter, label, [(verb.name, verb.summary) for verb in verbs])
        options = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        # Without empty lines, so that all of it is on one screen.
        _write_rows(formatter, "Options", options)
        formatter.write(f"{EXIT_CODES}\n")


class _LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, each loaded when it is first looked up."""

    def __init__(self) -> None:
        self._listed: dict[str, ListedVerb] = {}
        self._loaded: dict[str, click.Command] = {}

    def list(self, verb: ListedVerb) -> None:
        self._listed[verb.name] = verb

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = self._listed[name].load()
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        self._listed.pop(name, None)
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._listed, **self._loaded})

    def __len__(self) -> int:
        return len({**self._listed, **self._loaded})


def _write_rows(formatter: click.HelpFormatter, label: str, rows: Sequence[tuple[str, str]]) -> None:
    for number, (name, text) in enumerate(rows):
        formatter.write(f"{'' if number else label:{LABEL}} {name:{NAME}} {text}\n")


def _set_debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    settings_of(ctx).debug |= given


def _set_quiet(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    settings_of(ctx).quiet |= given
