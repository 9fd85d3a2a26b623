"""The command that finds rows of one table that are nearly the same, on Spark."""

from __future__ import annotations

from typing import Any

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_column, complete_index
from pennon.cli.joins import write_frame
from pennon.cli.options import names, on_table, output_option
from pennon.table import Table


@verb(
    "near-duplicates",
    example="pennon near-duplicates articles.lance embedding --distance 0.05 --columns id -o pairs.parquet",
)
@on_table
@click.argument("column", shell_complete=complete_column)
@click.option("--distance", type=float, required=True, help="Maximum distance of a pair, in the units of search.")
@click.option("-o", "--out", metavar="URI", help="Address of the result, which must not exist yet.")
@click.option("--groups", is_flag=True, help="Return groups of rows instead of pairs.")
@click.option("--metric", help="l2 or cosine.  [default: the index's]")
@click.option("--filter", help="SQL condition on the rows that are compared.")
@click.option("--columns", help="Columns to return for both rows: a,b,c.  [default: _rowid]")
@click.option(
    "--index", shell_complete=complete_index, help="Name of the index.  [default: the one with the most coverage]"
)
@click.option("--explain", "explained", is_flag=True, help="Show the plan without running it.")
@output_option
def near_duplicates(
    table: Table,
    column: str,
    distance: float,
    out: str | None,
    groups: bool,
    columns: str | None,
    explained: bool,
    output: str,
    **options: Any,
) -> None:
    """Find all pairs of rows of the table at URI whose vectors in COLUMN are within a distance of each other.

    The result is a Lance table, or Parquet where its name ends in .parquet.
    """
    if explained:
        render.print_plan(table.plan_near_duplicates(column, distance, **options), output)
        return
    if out is None:
        raise click.UsageError("Missing option '-o' / '--out'.")
    write_frame(
        table,
        "near-duplicates",
        out,
        output,
        lambda _: table.near_duplicates(column, distance, columns=names(columns), groups=groups, **options),
    )
