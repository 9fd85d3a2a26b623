"""The commands that list what a table has."""

from __future__ import annotations

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.options import on_table, output_option
from pennon.query.inventory import ReuseInfo
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
        reuse = table.fragment_reuse()
        listed = {"indices": [index.to_dict() for index in found], "fragment_reuse": reuse.to_dict() if reuse else None}
        render.print_json({"status": "done", "table": table.uri, "version": table.version, **listed})
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
    """Show the Fragment Reuse Index of the table at URI: compactions that are not yet applied to index files."""
    found = table.fragment_reuse()
    if output == "json":
        recorded = (found or ReuseInfo(0, False, ())).to_dict()
        render.print_json({"status": "done", "table": table.uri, "version": table.version, **recorded})
    elif found:
        render.print_reuse(found)
    else:
        render.console.print(f"{table.uri} has no Fragment Reuse Index")
