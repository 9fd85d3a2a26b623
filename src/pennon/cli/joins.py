"""The commands that join every row of another table, on Spark."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_address, complete_column
from pennon.cli.errors import settings_of
from pennon.cli.options import names, on_table, output_option
from pennon.cli.search_options import search_options
from pennon.cli.text import options_of_words, text_columns
from pennon.engine import require_spark
from pennon.engine.failures import task_failed
from pennon.errors import InvalidArgument, PennonError
from pennon.format.append import find_table
from pennon.format.store import Location
from pennon.jobs.lookup_join.plan import WAYS as LOOKUP_WAYS
from pennon.jobs.shared.frame_join import WAYS
from pennon.secrets import redact_address
from pennon.table import Table, open_table

if TYPE_CHECKING:
    from pennon.engine import DataFrame, SparkSession

PARQUET = ".parquet"


def join_options(ways: Sequence[str], columns: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What all joins take: the other table, where the result goes, and what it has."""
    options = (
        click.option(
            "--queries", required=True, metavar="URI", shell_complete=complete_address, help="The other table."
        ),
        click.option(
            "-o", "--out", required=True, metavar="URI", help="Address of the result, which must not exist yet."
        ),
        click.option(
            "--how",
            type=click.Choice(ways),
            default="inner",
            show_default=True,
            help="left keeps rows without a match.",
        ),
        click.option("--prefix", default="", help="Prefix for the names of the columns of the table at URI."),
        click.option("--columns", help=f"Columns of the table at URI: a,b,c.  [default: {columns}]"),
        click.option("--filter", help="SQL condition on the rows of the table at URI."),
        output_option,
    )

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        return reduce(lambda inner, option: option(inner), reversed(options), command)

    return decorated


@verb(
    "knn-join",
    example="pennon knn-join articles.lance embedding --queries new.lance --query-column v -o found.lance",
)
@on_table
@click.argument("column", shell_complete=complete_column)
@join_options(WAYS, "all but vectors")
@click.option("--query-column", help="Column of the other table with the query vectors.  [default: COLUMN]")
@click.option("--k", type=int, default=10, show_default=True, help="Neighbors to find for each row.")
@search_options
def knn_join(
    table: Table,
    column: str,
    queries: str,
    query_column: str | None,
    out: str,
    columns: str | None,
    output: str,
    **options: Any,
) -> None:
    """Find the rows of the table at URI whose vectors in COLUMN are nearest to those of another table, row by row.

    The other table and the result are Lance tables, or Parquet where their names end in .parquet.
    """
    _join(
        table,
        "knn-join",
        queries,
        out,
        output,
        lambda rows: table.knn_join(rows, column, query_column, columns=names(columns), **options),
    )


@verb(
    "text-join",
    example="pennon text-join articles.lance body --queries new.parquet --query-column question -o found.parquet",
)
@on_table
@click.argument("column", shell_complete=complete_column)
@join_options(WAYS, "all")
@click.option(
    "--query-column",
    help="Column of the other table with the queries: words, or a phrase in double quotes.  [default: COLUMN]",
)
@click.option("--k", type=int, default=10, show_default=True, help="Matches to find for each row.")
@options_of_words
def text_join(
    table: Table,
    column: str,
    queries: str,
    query_column: str | None,
    out: str,
    columns: str | None,
    output: str,
    **options: Any,
) -> None:
    """Find the rows of the table at URI whose text in COLUMN matches the queries of another table best, row by row.
    COLUMN can be a list (a,b), or * for all columns with an inverted index.

    The other table and the result are Lance tables, or Parquet where their names end in .parquet.
    """
    given = {name: value for name, value in options.items() if value is not None}
    searched = text_columns(column)
    searched = searched[0] if searched is not None and len(searched) == 1 else searched
    _join(
        table,
        "text-join",
        queries,
        out,
        output,
        lambda rows: table.text_join(rows, searched, query_column, columns=names(columns), **given),
    )


@verb(
    "lookup-join",
    example="pennon lookup-join events.lance --on uid=user_id --queries users.parquet -o found.parquet",
)
@on_table
@join_options(LOOKUP_WAYS, "all but the keys")
@click.option(
    "--on", required=True, multiple=True, metavar="COLUMN", help="Key of both tables, or OTHER=COLUMN. Can be repeated."
)
@click.option("--keys", type=int, help="Approximate number of distinct keys in the other table.")
@click.option("--explain", "explained", is_flag=True, help="Show the plan without running it.")
def lookup_join(
    table: Table,
    queries: str,
    on: tuple[str, ...],
    out: str,
    columns: str | None,
    output: str,
    explained: bool,
    **options: Any,
) -> None:
    """Find the rows of the table at URI that have the keys of another table, row by row, through indices where the key
    columns have any. semi and anti keep the rows of the other table that have a match, or none.

    The other table and the result are Lance tables, or Parquet where their names end in .parquet.
    """
    pairs = dict(_pair(text) for text in on)
    if explained:
        engine = require_spark(table.engine, "lookup-join")
        rows = _read(engine.session, queries, settings_of().storage)
        plan = table.plan_lookup_join(rows, pairs, columns=names(columns), **options)
        render.print_plan(plan, output)
        return
    _join(
        table,
        "lookup-join",
        queries,
        out,
        output,
        lambda rows: table.lookup_join(rows, pairs, columns=names(columns), **options),
    )


def _pair(text: str) -> tuple[str, str]:
    """A column of the other table, and one of the table: `uid=user_id`, or one name for both."""
    other, equals, column = text.partition("=")
    return (other, column) if equals else (text, text)


def _join(table: Table, name: str, queries: str, out: str, output: str, join: Callable[[DataFrame], DataFrame]) -> None:
    """Read the other table, join it, and write the result."""
    storage = settings_of().storage
    if not queries.endswith(PARQUET) and not _taken(out):
        open_table(queries, storage_options=storage)  # what is wrong with it is reported better here than through Spark
    write_frame(table, name, out, output, lambda session: join(_read(session, queries, storage)))


def write_frame(table: Table, name: str, out: str, output: str, make: Callable[[SparkSession], DataFrame]) -> None:
    """Write the rows of a DataFrame to a new table, or to Parquet files, and print their number."""
    engine = require_spark(table.engine, name)
    storage = settings_of().storage
    if _taken(out):
        raise InvalidArgument(f"there is a table at {out} already", "Name another place with -o")
    # PySpark warns about new versions of pandas, though only Arrow is used.
    warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
    frame = make(engine.session)
    stage = name.replace("-", " ")
    try:
        with engine.stage(stage):
            rows = _write(engine.session, frame, out, storage)
    except PennonError:
        raise
    except Exception as error:
        raise task_failed(stage, error) from error
    done = {"status": "done", "rows": rows, "out": redact_address(out)}
    render.print_json(done) if output == "json" else render.console.print(
        f"{rows:,} rows written to {redact_address(out)}"
    )


def _taken(out: str) -> bool:
    return not out.endswith(PARQUET) and find_table(Location.of(out, settings_of().storage)) is not None


def _read(spark: SparkSession, uri: str, storage: dict[str, str]) -> DataFrame:
    if uri.endswith(PARQUET):
        return spark.read.parquet(uri)
    # Imports pyspark, which commands without Spark must not wait for.
    from pennon.spark import read, register  # noqa: PLC0415

    register(spark)
    return read(spark, uri, storage_options=storage)


def _write(spark: SparkSession, rows: DataFrame, uri: str, storage: dict[str, str]) -> int:
    if uri.endswith(PARQUET):
        rows.write.parquet(uri)
        return spark.read.parquet(uri).count()
    from pennon.spark import register  # noqa: PLC0415

    register(spark)
    rows.write.format("pennon").options(**{f"storage.secret.{key}": value for key, value in storage.items()}).mode(
        "append"
    ).save(uri)
    return open_table(uri, storage_options=storage).count()
