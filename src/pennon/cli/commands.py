"""The commands. Exit codes: 0 done, 1 a Pennon error, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import click

import pennon
from pennon.cli import audit, maintenance, render, report
from pennon.cli.demo import run_demo
from pennon.cli.options import dry_run_option, on_table, output_option
from pennon.cli.queries import query_vector
from pennon.errors import InvalidArgument, PennonError
from pennon.table import Table

SCREEN_ROWS = 50


class _Group(click.Group):
    """Errors are one line with the remedy; `--debug` shows where they came from."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PennonError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("interrupted; what was under way is not committed", err=True)
            ctx.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pennon.__version__, prog_name="pennon")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.pass_context
def main(ctx: click.Context, debug: bool, quiet: bool) -> None:
    """Build, keep and query the indices of Lance tables on Spark."""
    ctx.obj = {"quiet": quiet}
    if not debug:
        warnings.showwarning = _print_warning


def vector_options(command: Callable[..., None]) -> Callable[..., None]:
    """What may be said of a vector index; each is refused where it means nothing."""
    for option in reversed(
        [
            click.option("--metric", help="l2, cosine or dot.  [default: l2]"),
            click.option("--num-partitions", type=int, help="IVF partitions.  [default: the root of the rows]"),
            click.option("--target-partition-size", type=int, help="Rows of a partition, instead of their number."),
            click.option("--num-sub-vectors", type=int, help="PQ: sub-vectors.  [default: one of 16 dimensions]"),
            click.option("--num-bits", type=int, help="PQ: 8 or 4; RQ: 1 to 9.  [default: 8, 5]"),
            click.option("--sample-rate", type=int, help="Vectors to train on, a partition.  [default: 256]"),
            click.option("--max-iters", type=int, help="Passes of k-means, at most.  [default: 50]"),
            click.option("--m", type=int, help="HNSW: neighbours of a node.  [default: 20]"),
            click.option("--ef-construction", type=int, help="HNSW: candidates for them.  [default: 150]"),
            click.option("--seed", type=int, help="Equal seeds make equal indices.  [default: 0]"),
        ]
    ):
        command = option(command)
    return command


@main.command("create-index")
@on_table
@click.argument("column")
@click.option(
    "--type",
    "index_type",
    default="btree",
    show_default=True,
    help="btree, ivf_flat, ivf_pq, ivf_sq, ivf_rq, ivf_hnsw_flat, ivf_hnsw_pq or ivf_hnsw_sq.",
)
@click.option("--name", help="Name of the index.  [default: COLUMN_idx]")
@click.option("--no-replace", is_flag=True, help="Fail if an index of that name exists.")
@click.option("--ranges", type=int, help="Number of page files.  [default: from rows and cores]")
@click.option("--rows-per-range", type=int, help="Rows of a page file, instead of --ranges.")
@click.option("--batch-size", type=int, help="Rows of a page.  [default: 4096]")
@vector_options
@click.option("--fragments", metavar="IDS", help="Index only these fragments, as one segment: 0,1,5.")
@dry_run_option
@output_option
def create_index(
    table: Table, column: str, no_replace: bool, fragments: str | None, dry_run: bool, output: str, **options: Any
) -> None:
    """Build an index on COLUMN of the table at URI."""
    options["fragment_ids"] = _numbers(fragments)
    plan = table.plan_index(column, **options)
    if dry_run:
        render.print_json(plan.to_dict()) if output == "json" else render.console.print(str(plan))
        return
    if output == "text":
        render.console.print(str(plan))
    index = table.create_index(column, replace=not no_replace, **options)
    if output == "json":
        render.print_json(render.indices_as_json([index])[0])
    else:
        render.console.print()
        render.print_indices([index])


@main.command()
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


@main.command()
@on_table
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--columns", help="Columns to show: a,b,c.  [default: all]")
@click.option("--limit", type=int, help=f"Rows to show.  [default: {SCREEN_ROWS}]")
@click.option("--count", is_flag=True, help="Only count the rows.")
@output_option
def scan(table: Table, filter_: str | None, columns: str | None, limit: int | None, count: bool, output: str) -> None:
    """Show the rows of the table at URI that a filter selects, through its indices."""
    if count:
        number = table.count(filter_)
        render.print_json({"count": number}) if output == "json" else render.console.print(f"{number:,}")
        return
    limit = SCREEN_ROWS if limit is None else limit
    rows = table.scan(filter_, columns.split(",") if columns else None, limit=limit)
    if output == "json":
        render.print_json(rows.to_pylist())
        return
    render.print_rows(rows)
    if rows.num_rows == limit:
        render.console.print(f"(the first {limit:,} rows; --limit shows more, --count tells how many there are)")


@main.command()
@on_table
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--analyze", is_flag=True, help="Run the scan too, and say what it touched.")
@output_option
def explain(table: Table, filter_: str | None, analyze: bool, output: str) -> None:
    """Tell how a scan of the table at URI would go."""
    explanation = table.explain(filter_, analyze=analyze)
    render.print_json(explanation.to_dict()) if output == "json" else render.console.print(str(explanation))


@main.command()
@on_table
@click.argument("column")
@click.option("--vector", metavar="JSON|@FILE", help="The query: a JSON list, or a file of JSON or .npy.")
@click.option("--like", metavar="FILTER", help="Take the vector of the first row this selects.")
@click.option("--k", type=int, default=10, show_default=True, help="Neighbours to find.")
@click.option("--metric", help="l2, cosine or dot.  [default: the index's]")
@click.option("--nprobes", type=int, help="Partitions to look at.  [default: 20, more where they hold too little]")
@click.option("--refine-factor", type=int, help="Measure k times this many candidates on their vectors.")
@click.option("--ef", type=int, help="HNSW: breadth of the walk.  [default: 1.5 k]")
@click.option("--filter", "filter_", help="SQL condition on the rows.")
@click.option("--columns", help="Columns to show: a,b,c.  [default: all but COLUMN]")
@click.option("--index", help="Name of the index.  [default: the one that covers most]")
@click.option("--explain", "explained", is_flag=True, help="Tell how it would go and stop.")
@click.option("--analyze", is_flag=True, help="Tell how it went.")
@output_option
def search(
    table: Table,
    column: str,
    vector: str | None,
    like: str | None,
    k: int,
    filter_: str | None,
    columns: str | None,
    explained: bool,
    analyze: bool,
    output: str,
    **options: Any,
) -> None:
    """Show the rows of the table at URI whose vectors in COLUMN are nearest to a query."""
    query = query_vector(table, column, vector, like)
    shown = columns.split(",") if columns else [name for name in table.schema.names if name != column]
    options |= {"filter": filter_, "columns": shown}
    if explained or analyze:
        explanation = table.explain_search(column, query, k, analyze=analyze, **options)
        render.print_json(explanation.to_dict()) if output == "json" else render.console.print(str(explanation))
        return
    rows = table.search(column, query, k, **options)
    render.print_json(rows.to_pylist()) if output == "json" else render.print_rows(rows)


@main.command("drop-index")
@on_table
@click.argument("name")
@output_option
def drop_index(table: Table, name: str, output: str) -> None:
    """Remove the index NAME from the table at URI."""
    table.drop_index(name)
    done = {"dropped": name, "version": table.version}
    render.print_json(done) if output == "json" else render.console.print(f"dropped {name}; version {table.version}")


@main.command()
@click.option("--rows", type=int, default=5_000_000, show_default=True, help="Rows of the table that is made.")
@click.option("--keep", type=click.Path(), help="Make the table here and leave it.  [default: a temporary folder]")
def demo(rows: int, keep: str | None) -> None:
    """Make a table, index it with Spark, and query it."""
    run_demo(rows, keep)


for command in (*maintenance.COMMANDS, *audit.COMMANDS, *report.COMMANDS):
    main.add_command(command)


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a list of fragment ids", "Write them like 0,1,5") from None


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {message}", err=True)
