"""What a shell offers on Tab: verbs, options, folders, and the indices and columns of a table on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from pennon.cli.command import verb
from pennon.format.store import Location
from pennon.table import Table, open_table

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PENNON_COMPLETE"


@verb(
    "completion",
    example='eval "$(pennon completion bash)"    # in ~/.bashrc',
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for the completion of pennon commands in a shell."""
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(ctx.find_root().command, {}, "pennon", VARIABLE).source())


def complete_address(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def complete_index(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    table = _table(ctx)
    return _beginning(incomplete, [index.name for index in table.indices()] if table else ())


def complete_column(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    table = _table(ctx)
    return _beginning(incomplete, table.schema.names if table else ())


def _table(ctx: click.Context) -> Table | None:
    """The table named before on the line. Only of this machine, since an object store is too slow for Tab.
    Errors are not shown: the shell is in the middle of a line."""
    # Where the line ends with an option that waits for its value, click leaves arguments unparsed.
    uri = ctx.params.get("uri") or next(iter(ctx.args), None)
    try:
        if uri is None or Location.of(uri).local_root is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return open_table(uri)
    except Exception:  # noqa: BLE001
        return None


def _beginning(incomplete: str, words: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]
