"""The command that checks whether indices agree with their table."""

from __future__ import annotations

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_index
from pennon.cli.options import on_table, output_option
from pennon.jobs.audit.report import RECALL_QUERIES, Action
from pennon.table import Table

REPAIRS = {
    Action.REBUILD: "its wrong segments are built from the data",
    Action.RETRAIN: "its wrong segments are built from the data, with models trained again",
    Action.REMOVE_FRAGMENT_REUSE: "the Fragment Reuse Index is removed, and all indices are built from the data",
}


@verb(
    "audit",
    example="pennon audit events.lance --repair --dry-run",
)
@on_table
@click.option("--sample", type=float, default=1.0, show_default=True, help="Share of the fragments to compare.")
@click.option("--repair", is_flag=True, help="Rebuild damaged indices from the table, and audit again.")
@click.option(
    "--index",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_index,
    help="Only this index. Can be repeated.  [default: all]",
)
@click.option(
    "--recall-queries",
    type=int,
    default=RECALL_QUERIES,
    show_default=True,
    help="Queries that measure the recall of vector indices; 0 skips it.",
)
@click.option("--dry-run", is_flag=True, help="With --repair: show what would be rebuilt.")
@output_option
@click.pass_context
def audit(
    ctx: click.Context,
    table: Table,
    sample: float,
    repair: bool,
    names: tuple[str, ...],
    recall_queries: int,
    dry_run: bool,
    output: str,
) -> None:
    """Compare the indices of the table at URI with its rows.

    The exit code is 1 if an error is found and not repaired. Warnings and notes do not change it.
    """
    repairs = repair and not dry_run
    report = table.audit(sample=sample, repair=repairs, index_names=names or None, recall_queries=recall_queries)
    render.print_json(report.to_dict()) if output == "json" else render.console.print(str(report))
    if repair and dry_run and output == "text":
        for finding in report.errors:
            repair_text = REPAIRS[finding.action] if finding.action else "there is no repair"
            render.console.print(f"would repair {finding.index or 'the table'}: {repair_text}")
    ctx.exit(0 if report.ok else 1)
