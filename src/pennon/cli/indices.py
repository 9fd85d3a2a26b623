"""The commands that list what a table has."""

from __future__ import annotations

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.options import on_table, output_option
from pennon.table import Table


@verb(
    "indices",
    example="pennon indices events.lance --output json",
)
@on_table
@output_option
def indices(table: Table, output: str) -> None:
    """List the indices of the table at URI."""
    found = table.indices()
    if output == "json":
        render.print_json(render.indices_as_json(found))
        return
    if found:
        render.print_indices(found)
    else:
        render.console.print(f"{table.uri} has no indices")
    reuse = table.fragment_reuse()
    if reuse:
        render.console.print(f"\n{render.reuse_line(reuse)}")


@verb(
    "fragment-reuse",
    example="pennon fragment-reuse events.lance",
)
@on_table
@output_option
def fragment_reuse(table: Table, output: str) -> None:
    """Show the Fragment Reuse Index of the table at URI: deferred compactions that index files have yet to follow."""
    found = table.fragment_reuse()
    if output == "json":
        render.print_json(render.reuse_as_json(found))
    elif found:
        render.print_reuse(found)
    else:
        render.console.print(f"{table.uri} has no Fragment Reuse Index")
