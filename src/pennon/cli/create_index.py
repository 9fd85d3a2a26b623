"""The commands that make and remove indices."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click

from pennon.cli import render
from pennon.cli.command import Verb, verb
from pennon.cli.completion import complete_column, complete_index
from pennon.cli.options import dry_run_option, names, numbers, on_table, output_option
from pennon.index.option_text import SharedOption, shared_options
from pennon.index.options import either
from pennon.index.registry import index_options, index_types
from pennon.table import Table


class CreateIndex(Verb):
    """`--type` and the options of all index types come from the registry, and have a separate list in the help."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_of_types()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        common = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        for title, params in {"Options": common, "Index types": _of_types()}.items():
            with formatter.section(title):
                formatter.write_dl([record for param in params if (record := param.get_help_record(ctx))])


@click.command(
    "create-index",
    cls=CreateIndex,
    epilog="pennon create-index events.lance user_id --type btree",
)
@on_table
@click.argument("column", shell_complete=complete_column)
@click.option("--name", help="Name of the index.  [default: COLUMN_idx]")
@click.option("--no-replace", is_flag=True, help="Fail if an index of this name exists.")
@click.option("--recall", type=float, help="Choose a vector index that reaches this recall, measured on a sample.")
@click.option("--memory", metavar="SIZE", help="Choose a vector index that fits into this memory, such as 4GiB.")
@click.option("--fragments", metavar="IDS", help="Index only these fragments, as one segment: 0,1,5.")
@dry_run_option
@output_option
def create_index(
    table: Table,
    column: str,
    index_type: str | None,
    name: str | None,
    no_replace: bool,
    recall: float | None,
    memory: str | None,
    fragments: str | None,
    dry_run: bool,
    output: str,
    **options: Any,
) -> None:
    """Build an index on COLUMN of the table at URI."""
    fragment_ids = numbers(fragments)
    if recall is not None or memory is not None:
        advice = table.advise_index(column, recall=recall, memory=memory, index_type=index_type, **options)
        if output == "text":
            render.console.print(str(advice))
        chosen = advice.options
    else:
        chosen = index_options(index_type or next(iter(index_types())).lower(), options)
    plan = table.plan_index(column, chosen, name, fragment_ids=fragment_ids)
    if dry_run:
        render.print_plan(plan, output)
        return
    if output == "text":
        render.console.print(str(plan))
    result = table.create_index(column, chosen, name, replace=not no_replace, fragment_ids=fragment_ids)
    if output == "json":
        render.print_json(result.to_dict())
    else:
        render.console.print()
        render.print_indices([result.index])


@verb("drop-index", example="pennon drop-index events.lance user_id_idx --dry-run")
@on_table
@click.argument("name", shell_complete=complete_index)
@dry_run_option
@output_option
def drop_index(table: Table, name: str, dry_run: bool, output: str) -> None:
    """Remove the index NAME from the table at URI."""
    if dry_run:
        render.print_plan(table.plan_drop_index(name), output)
    else:
        render.print_result(table.drop_index(name), output)


def _of_types() -> list[click.Option]:
    """`--type`, and every option of all index types once. Arrays are left to Python."""
    types = index_types()
    found = [
        _click_option(shared, f"{shared.help}  [{shared.constraints(types)}]")
        for shared in shared_options(types)
        if shared.type is not object
    ]
    return [_type_option(types), *found]


def _type_option(types: Collection[str]) -> click.Option:
    known = [name.lower() for name in types]
    return click.Option(
        ["--type", "index_type"],
        metavar="TYPE",
        help=f"{either(known)}.  [default: {known[0]}; chosen with --recall or --memory]",
        shell_complete=lambda ctx, param, incomplete: [name for name in known if name.startswith(incomplete.lower())],
    )


def _click_option(shared: SharedOption, text: str) -> click.Option:
    flag = shared.name.replace("_", "-")
    if shared.type is bool:
        return click.Option([f"--{flag}/--no-{flag}", shared.name], default=None, help=text)
    if shared.type is tuple:
        return click.Option([f"--{flag}", shared.name], metavar="A,B", callback=_split_list, help=text)
    return click.Option([f"--{flag}", shared.name], type=shared.type, help=text)


def _split_list(ctx: click.Context, param: click.Parameter, given: str | None) -> list[str] | None:
    return names(given)
