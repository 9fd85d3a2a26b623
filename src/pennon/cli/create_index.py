"""The commands that make and remove indices, and change the column under one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_column, complete_index
from pennon.cli.options import dry_run_option, on_table, output_option
from pennon.errors import InvalidArgument
from pennon.table import Table
from pennon.text import human_bytes, plural


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


@verb(
    "create-index",
    short_help="Build an index on a column.",
    example="pennon create-index events.lance user_id --type btree",
)
@on_table
@click.argument("column", shell_complete=complete_column)
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


@verb("drop-index", short_help="Remove an index.", example="pennon drop-index events.lance user_id_idx --dry-run")
@on_table
@click.argument("name", shell_complete=complete_index)
@dry_run_option
@output_option
def drop_index(table: Table, name: str, dry_run: bool, output: str) -> None:
    """Remove the index NAME from the table at URI."""
    gone = table.drop_index(name, dry_run=dry_run)
    if output == "json":
        said = {"segments": len(gone.segments), "size_bytes": gone.size_bytes, "version": table.version}
        render.print_json({"would_drop" if dry_run else "dropped": name, **said})
    elif dry_run:
        size = f"{plural(len(gone.segments), 'segment')}, {human_bytes(gone.size_bytes)}"
        render.console.print(f"would drop {name}: {gone.type} on {', '.join(gone.columns)}, {size}")
    else:
        render.console.print(f"dropped {name}; version {table.version}")


@verb(
    "update-column",
    short_help="Change a column in place, by an SQL expression.",
    example='pennon update-column events.lance price "price * 1.1" --where "user_id = 42"',
)
@on_table
@click.argument("column", shell_complete=complete_column)
@click.argument("expression")
@click.option("--where", metavar="FILTER", help="Only rows this selects.  [default: all]")
@dry_run_option
@output_option
def update_column(table: Table, column: str, expression: str, where: str | None, dry_run: bool, output: str) -> None:
    """Set COLUMN of the table at URI to an SQL EXPRESSION, in place. Put one that begins with - in parentheses."""
    done = table.update_column(column, expression, where=where, dry_run=dry_run)
    if output == "json":
        render.print_json(
            {"rows": done.rows, "fragments": done.fragments, "version": table.version}
            | ({"dry_run": True} if dry_run else {})
        )
        return
    changed = f"{plural(done.rows, 'row')} of {plural(len(done.fragments), 'fragment')}"
    if not dry_run:
        render.console.print(f"{changed} changed; version {table.version}")
        return
    losing = [index.name for index in table.refresh().indices() if column in index.columns] if done.fragments else []
    then = f"; {', '.join(losing)} would not cover them until `pennon optimize`" if losing else ""
    render.console.print(f"{changed} would change{then}")


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a list of fragment ids", "Write them like 0,1,5") from None
