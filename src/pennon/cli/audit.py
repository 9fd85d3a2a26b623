"""The command that asks whether indices agree with their table."""

from __future__ import annotations

import click

from pennon.cli import render
from pennon.cli.options import on_table, output_option
from pennon.jobs.audit import RECALL_QUERIES
from pennon.table import Table


@click.command()
@on_table
@click.option("--sample", type=float, default=1.0, show_default=True, help="Share of the fragments to compare.")
@click.option("--repair", is_flag=True, help="Build what is wrong from the data, and look again.")
@click.option("--index", "names", multiple=True, metavar="NAME", help="Only this index; repeat.  [default: all]")
@click.option(
    "--recall-queries",
    type=int,
    default=RECALL_QUERIES,
    show_default=True,
    help="Vectors to measure recall with, beside a scan of all; 0 measures none.",
)
@output_option
@click.pass_context
def audit(
    ctx: click.Context,
    table: Table,
    sample: float,
    repair: bool,
    names: tuple[str, ...],
    recall_queries: int,
    output: str,
) -> None:
    """Compare the indices of the table at URI with its rows. Exit code 1 where an error is left."""
    report = table.audit(sample=sample, repair=repair, index_names=names or None, recall_queries=recall_queries)
    render.print_json(report.to_dict()) if output == "json" else render.console.print(str(report))
    ctx.exit(0 if report.ok else 1)


COMMANDS = (audit,)
