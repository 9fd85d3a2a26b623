"""The commands that search texts, alone and together with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_column, complete_index
from pennon.cli.options import names, on_table, output_option
from pennon.cli.query_vector import query_vector
from pennon.errors import InvalidArgument
from pennon.table import Table

ALL = "*"
OPTIONS_OF_WORDS = (
    click.option(
        "--operator",
        type=click.Choice(["or", "and"]),
        help="Match any word (or), or only all of them (and).  [default: or]",
    ),
    click.option("--fuzziness", type=int, help="Also find words within this edit distance.  [default: 0]"),
    click.option("--max-expansions", type=int, help="Maximum number of similar words.  [default: 50]"),
    click.option("--prefix-length", type=int, help="Leading characters that similar words must share.  [default: 0]"),
    click.option(
        "--index", shell_complete=complete_index, help="Name of the index.  [default: the one with the most coverage]"
    ),
)


def options_of_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that text searches of plain words have."""
    for option in reversed(OPTIONS_OF_WORDS):
        command = option(command)
    return command


def text_columns(text: str) -> list[str] | None:
    """The columns to search, None for all that have an index."""
    return None if text == ALL else names(text)


@verb(
    "search-text",
    example='pennon search-text articles.lance body "range partitioned index" --k 5 --columns id,title',
)
@on_table
@click.argument("column", shell_complete=complete_column)
@click.argument("query")
@click.option("--k", type=int, default=10, show_default=True, help="Rows to find.")
@options_of_words
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--columns", help="Columns to show: a,b,c.  [default: all]")
@click.option("--explain", "explained", is_flag=True, help="Show the plan without running the search.")
@click.option("--analyze", is_flag=True, help="Run the search, and show what it read.")
@output_option
def search_text(
    table: Table,
    column: str,
    query: str,
    k: int,
    filter_: str | None,
    columns: str | None,
    explained: bool,
    analyze: bool,
    output: str,
    **options: Any,
) -> None:
    """Show the rows of the table at URI whose text in COLUMN matches QUERY best. A QUERY in double quotes is a phrase.
    COLUMN can be a list (a,b), or * for all columns with an inverted index."""
    options = {name: value for name, value in options.items() if value is not None}
    options |= {"filter": filter_, "columns": names(columns)}
    if explained or analyze:
        explanation = table.explain_search_text(text_columns(column), query, k, analyze=analyze, **options)
        render.print_explanation(explanation, output)
        return
    rows = table.search_text(text_columns(column), query, k, **options)
    render.print_found(rows) if output == "json" else render.print_rows(rows)


@verb(
    "search-hybrid",
    example='pennon search-hybrid articles.lance embedding body "range index" --like "id = 42" --columns id,title',
)
@on_table
@click.argument("vector_column", shell_complete=complete_column)
@click.argument("text_column", shell_complete=complete_column)
@click.argument("text")
@click.option("--vector", metavar="JSON|@FILE", help="The vector: a JSON list, or a file of JSON or .npy.")
@click.option("--like", metavar="FILTER", help="Use the vector of the first row that this filter selects.")
@click.option("--k", type=int, default=10, show_default=True, help="Rows to find.")
@click.option(
    "--fusion",
    type=click.Choice(["rrf", "linear"]),
    default="rrf",
    show_default=True,
    help="How to combine the two rankings.",
)
@click.option("--weights", metavar="V,T", help="Weights of vectors and text.  [default: 1,1; for linear 0.7,0.3]")
@click.option("--candidates", type=int, help="Rows to find in each of the two searches.  [default: k]")
@click.option("--recall", type=float, help="Recall of the vector search.")
@click.option("--vector-index", shell_complete=complete_index, help="Name of the vector index.")
@click.option("--text-index", shell_complete=complete_index, help="Name of the inverted index.")
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--columns", help="Columns to show: a,b,c.  [default: all but VECTOR_COLUMN]")
@output_option
def search_hybrid(
    table: Table,
    vector_column: str,
    text_column: str,
    text: str,
    vector: str | None,
    like: str | None,
    k: int,
    weights: str | None,
    filter_: str | None,
    columns: str | None,
    output: str,
    **options: Any,
) -> None:
    """Show the rows of the table at URI that match best by a vector and by TEXT combined."""
    query = query_vector(table, vector_column, vector, like)
    shown = names(columns) or [name for name in table.schema.names if name != vector_column]
    options |= {"filter": filter_, "columns": shown, "weights": _numbers(weights)}
    rows = table.search_hybrid((vector_column, query), (text_columns(text_column), text), k, **options)
    render.print_found(rows) if output == "json" else render.print_rows(rows)


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"--weights {text!r} are not numbers", "Write --weights 0.7,0.3") from None
