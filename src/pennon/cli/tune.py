"""The command that measures which settings of searches give a recall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_column, complete_index
from pennon.cli.options import on_table, output_option
from pennon.errors import InvalidArgument
from pennon.table import Table


@verb("tune", example="pennon tune articles.lance embedding --recall 0.95 --k 10 --store")
@on_table
@click.argument("column", shell_complete=complete_column)
@click.option("--recall", type=float, default=0.95, show_default=True, help="Share of the true neighbors to find.")
@click.option("--k", type=int, default=10, show_default=True, help="Neighbors to find.")
@click.option("--filter", "filter_", help="SQL condition of the searches to measure.")
@click.option("--queries", metavar="FILE", help="Query vectors in a .npy file.  [default: rows of the table]")
@click.option("--sample", type=int, default=1000, show_default=True, help="Rows of the table to use as queries.")
@click.option("--metric", help="l2, cosine or dot.  [default: the index's]")
@click.option("--index", shell_complete=complete_index, help="Measure only this index.  [default: all]")
@click.option("--store", is_flag=True, help="Store the result in the table, for searches with --recall.")
@output_option
def tune(
    table: Table,
    column: str,
    recall: float,
    k: int,
    filter_: str | None,
    queries: str | None,
    output: str,
    **options: Any,
) -> None:
    """Measure which search settings on COLUMN of the table at URI reach a recall, and recommend the fastest."""
    vectors = None if queries is None else _vectors(queries)
    result = table.tune(column, recall, k, filter=filter_, queries=vectors, **options)
    render.print_json({"status": "done", **result.to_dict()}) if output == "json" else render.console.print(str(result))


def _vectors(path: str) -> Any:
    try:
        return np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the queries cannot be read: {error}", "Give a file of .npy, a row a query") from error
