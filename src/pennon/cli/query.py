"""The commands that ask a table for rows, or how it would find them."""

from __future__ import annotations

from typing import Any

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_column
from pennon.cli.options import names, names_or_expressions, numbers, on_table, orderings, output_option
from pennon.cli.query_vector import query_vector
from pennon.cli.search_options import search_options
from pennon.table import Table
from pennon.wording import plural

SCREEN_ROWS = 50


@verb(
    "scan",
    example='pennon scan events.lance --filter "user_id = 42" --columns user_id,ts',
)
@on_table
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--columns", help='Columns to show: a,b,c, or expressions: {"double": "price * 2"}.  [default: all]')
@click.option("--limit", type=int, help=f"Rows to show.  [default: {SCREEN_ROWS}]")
@click.option("--offset", type=int, help="Rows to skip.")
@click.option("--order-by", metavar="COLUMNS", help="Sort: a,b desc, c nulls first.  [default: table order]")
@click.option("--fragments", metavar="IDS", help="Only these fragments: 0,1,5.  [default: all]")
@click.option("--fast-search", is_flag=True, help="Search only fragments that an index of the filter covers.")
@click.option("--include-deleted-rows", is_flag=True, help="Include deleted rows, with an empty _rowid.")
@click.option("--with-row-id", is_flag=True, help="Show _rowid.")
@click.option("--with-row-address", is_flag=True, help="Show _rowaddr.")
@click.option("--count", is_flag=True, help="Only count the rows that --filter selects.")
@output_option
def scan(
    table: Table,
    filter_: str | None,
    columns: str | None,
    limit: int | None,
    order_by: str | None,
    fragments: str | None,
    count: bool,
    output: str,
    **options: Any,
) -> None:
    """Show the rows of the table at URI that a filter selects, through its indices."""
    if count:
        if columns or order_by or fragments or any(value not in (None, False) for value in (limit, *options.values())):
            raise click.UsageError("--count can be combined only with --filter")
        number = table.count(filter_)
        counted = {"status": "done", "count": number}
        render.print_json(counted) if output == "json" else render.console.print(f"{number:,}")
        return
    limit = SCREEN_ROWS if limit is None else limit
    options["with_row_id"] |= options["include_deleted_rows"]
    options |= {"order_by": orderings(order_by), "fragments": numbers(fragments), "limit": limit}
    rows = table.scan(filter_, names_or_expressions(columns), **options)
    if output == "json":
        render.print_found(rows, limit=limit)
        return
    render.print_rows(rows)
    if rows.num_rows == limit:
        render.console.print(f"({plural(limit, 'row')} shown; use --limit for more, --count for their number)")


@verb(
    "explain",
    example='pennon explain events.lance --filter "user_id = 42" --analyze',
)
@on_table
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--analyze", is_flag=True, help="Run the scan, and show what it read.")
@output_option
def explain(table: Table, filter_: str | None, analyze: bool, output: str) -> None:
    """Show how a scan of the table at URI would run."""
    explanation = table.explain(filter_, analyze=analyze)
    render.print_explanation(explanation, output)


@verb(
    "search",
    example='pennon search articles.lance embedding --like "id = 42" --k 5 --columns id,title',
)
@on_table
@click.argument("column", shell_complete=complete_column)
@click.option("--vector", metavar="JSON|@FILE", help="The query: a JSON list, or a file of JSON or .npy.")
@click.option("--like", metavar="FILTER", help="Use the vector of the first row that this filter selects.")
@click.option("--k", type=int, default=10, show_default=True, help="Neighbors to find.")
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--columns", help="Columns to show: a,b,c.  [default: all but COLUMN]")
@search_options
@click.option("--explain", "explained", is_flag=True, help="Show the plan without running the search.")
@click.option("--analyze", is_flag=True, help="Run the search, and show what it read.")
@output_option
def search(
    table: Table,
    column: str,
    vector: str | None,
    like: str | None,
    k: int | None,
    filter_: str | None,
    columns: str | None,
    explained: bool,
    analyze: bool,
    output: str,
    **options: Any,
) -> None:
    """Show the rows of the table at URI whose vectors in COLUMN are nearest to a query."""
    query = query_vector(table, column, vector, like)
    shown = names(columns) or [name for name in table.schema.names if name != column]
    options |= {"filter": filter_, "columns": shown}
    if explained or analyze:
        explanation = table.explain_search(column, query, k, analyze=analyze, **options)
        render.print_explanation(explanation, output)
        return
    rows = table.search(column, query, k, **options)
    render.print_found(rows) if output == "json" else render.print_rows(rows)
