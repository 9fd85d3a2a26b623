"""The commands that change the rows of a table."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, cast

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_address, complete_column
from pennon.cli.errors import settings_of
from pennon.cli.options import dry_run_option, names, on_table, output_option
from pennon.engine import SparkEngine
from pennon.errors import InvalidArgument
from pennon.jobs.merge.clauses import Delete, Insert, Update
from pennon.table import Table, open_table

if TYPE_CHECKING:
    from pennon.engine import DataFrame, SparkSession

PARQUET, CSV = ".parquet", ".csv"

maintain_option = click.option(
    "--maintain/--no-maintain",
    default=None,
    help="Extend the indices to the new rows.  [default: if many rows are uncovered]",
)


@verb("delete", example='pennon delete events.lance "user_id = 42" --dry-run')
@on_table
@click.argument("filter", required=False)
@click.option("--where", metavar="FILTER", help="The same as the argument.")
@dry_run_option
@output_option
def delete(table: Table, filter: str | None, where: str | None, dry_run: bool, output: str) -> None:
    """Delete the rows of the table at URI that FILTER selects: an SQL condition, or true for all."""
    if (filter is None) == (where is None):
        raise click.UsageError('give the rows to delete as one filter: "user_id = 42", or true for all')
    filter = filter if where is None else where
    if dry_run:
        render.print_plan(table.plan_delete(filter), output)
    else:
        render.print_result(table.delete(filter), output)


@verb("update", example='pennon update events.lance "price=price * 1.1" --where "user_id = 42"')
@on_table
@click.argument("values", nargs=-1, required=True, metavar="COLUMN=EXPRESSION...")
@click.option("--where", metavar="FILTER", required=True, help="The rows that this filter selects: true for all.")
@click.option("--in-place", is_flag=True, help="Rewrite one column of the fragments instead of writing new rows.")
@maintain_option
@dry_run_option
@output_option
def update(
    table: Table,
    values: tuple[str, ...],
    where: str,
    in_place: bool,
    maintain: bool | None,
    dry_run: bool,
    output: str,
) -> None:
    """Set columns of rows of the table at URI to SQL expressions."""
    given = _assignments(values)
    if not dry_run:
        done = table.update(given, where=where, in_place=in_place, maintain=maintain)
        render.print_result(done, output)
        return
    plan = table.plan_update(given, where=where, in_place=in_place)
    render.print_plan(plan, output)
    if output == "text" and in_place and plan.fragments:
        losing = [index.name for index in table.refresh().indices() if set(given) & set(index.columns)]
        if losing:
            render.console.print(f"{', '.join(losing)} would not cover them until `pennon optimize`")


@verb("merge", example="pennon merge events.lance changes.parquet --on id")
@on_table
@click.argument("source", shell_complete=complete_address)
@click.option("--on", required=True, metavar="COLUMNS", shell_complete=complete_column, help="The key: a, or a,b.")
@click.option(
    "--when-matched",
    type=click.Choice(["update", "delete", "keep"]),
    default="update",
    show_default=True,
    help="What to do with rows whose key is in SOURCE.",
)
@click.option("--columns", help="Columns that an update sets: a,b,c.  [default: all of SOURCE]")
@click.option("--matched-if", metavar="SQL", help='Only if this is true: "source.ts > target.ts".')
@click.option("--insert/--no-insert", default=True, show_default=True, help="Insert rows with new keys.")
@click.option("--insert-if", metavar="SQL", help='Only if this is true: "NOT source.deleted".')
@click.option("--delete-others", metavar="SQL", help="Delete rows whose key is not in SOURCE, if this is true.")
@maintain_option
@dry_run_option
@output_option
def merge(
    table: Table, source: str, on: str, maintain: bool | None, dry_run: bool, output: str, **options: Any
) -> None:
    """Merge the rows of SOURCE into the table at URI by key: by default, update those that exist and insert the others.

    SOURCE is a Lance table, or a Parquet or CSV file if its name ends in .parquet or .csv.
    """
    columns, condition = names(options["columns"]), options["matched_if"]
    matched = {"update": Update(columns, condition), "delete": Delete(condition), "keep": None}[options["when_matched"]]
    others = options["delete_others"]
    clauses: dict[str, Any] = {
        "when_matched": matched,
        "when_not_matched": Insert(options["insert_if"]) if options["insert"] else None,
        "when_not_matched_by_source": None if others is None else Delete(others),
    }
    rows, keys = _read(table, source), names(on) or []
    if dry_run:
        render.print_plan(table.plan_merge(rows, keys, **clauses), output)
    else:
        render.print_result(table.merge(rows, keys, maintain=maintain, dry_run=False, **clauses), output)


def _assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Columns and expressions, from `a=b + 1`, or from a JSON object where names have an equals sign."""
    found: dict[str, str] = {}
    for text in texts:
        given: Any = None
        if text.startswith("{"):
            try:
                given = json.loads(text)
            except ValueError:
                given = None  # a column may begin with a brace
        if isinstance(given, dict):
            found |= cast(dict[str, str], given)
            continue
        name, equals, expression = text.partition("=")
        if not equals or not name.strip() or not expression.strip():
            raise InvalidArgument(f"{text!r} is not of the form COLUMN=EXPRESSION", 'Write "price=price * 1.1"')
        found[name.strip()] = expression.strip()
    return found


def _read(table: Table, uri: str) -> Any:
    """The rows of a source, by Spark if the table's jobs run there."""
    storage = settings_of().storage
    if isinstance(table.engine, SparkEngine):
        # PySpark warns about new versions of pandas, though only Arrow is used.
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        return _read_by_spark(table.engine.session, uri, storage)
    # Slow to import, and not needed on Spark.
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import dataset  # noqa: PLC0415

    if uri.endswith((PARQUET, CSV)):
        try:
            return dataset.dataset(uri, format=uri.rpartition(".")[2]).scanner().to_reader()
        except FileNotFoundError as error:
            raise InvalidArgument(f"there is no file {uri}", "Check the path of the source") from error
        except (OSError, pa.ArrowException) as error:
            raise InvalidArgument(f"{uri} cannot be read: {error}") from error
    other = open_table(uri, storage_options=storage, engine="local", progress=False)
    return pa.RecordBatchReader.from_batches(other.schema, other.scan_batches())


def _read_by_spark(spark: SparkSession, uri: str, storage: dict[str, str]) -> DataFrame:
    if uri.endswith(PARQUET):
        return spark.read.parquet(uri)
    if uri.endswith(CSV):
        return spark.read.csv(uri, header=True, inferSchema=True)
    open_table(uri, storage_options=storage)  # what is wrong with it is reported better here than through Spark
    # Imports pyspark, which commands without Spark must not wait for.
    from pennon.spark import read, register  # noqa: PLC0415

    register(spark)
    return read(spark, uri, storage_options=storage)
