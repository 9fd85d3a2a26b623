"""The commands that remove what compactions and crashed jobs have left behind."""

from __future__ import annotations

from datetime import timedelta

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.options import dry_run_option, duration, on_table, output_option
from pennon.table import Table


@verb(
    "catch-up",
    example="pennon catch-up events.lance --dry-run",
)
@on_table
@dry_run_option
@output_option
def catch_up(table: Table, dry_run: bool, output: str) -> None:
    """Rewrite index segments of the table at URI that know rows by addresses from before a deferred compaction."""
    if dry_run:
        render.print_plan(table.plan_catch_up(), output)
    else:
        render.print_result(table.catch_up_indices(), output)


@verb(
    "trim",
    example="pennon trim events.lance --dry-run",
)
@on_table
@dry_run_option
@output_option
def trim(table: Table, dry_run: bool, output: str) -> None:
    """Remove from the Fragment Reuse Index of the table at URI what no index file needs."""
    if dry_run:
        render.print_plan(table.plan_trim(), output)
    else:
        render.print_result(table.trim_fragment_reuse(), output)


@verb(
    "clean-orphans",
    example="pennon clean-orphans events.lance --older-than 7d --dry-run",
)
@on_table
@click.option(
    "--older-than",
    type=duration,
    metavar="DURATION",
    default="7d",
    show_default=True,
    help="Minimum time since the last write.",
)
@click.option(
    "--no-jobs-running",
    is_flag=True,
    help="Assert that no job is running: allows less than 1d, and deletes orphans of unknown age.",
)
@dry_run_option
@output_option
def clean_orphans(table: Table, older_than: float, no_jobs_running: bool, dry_run: bool, output: str) -> None:
    """Delete index directories and data files of the table at URI that belong to no version, such as those of a job
    that was killed.

    The files of a running job belong to no version either until it commits; only their age distinguishes them.
    Therefore, --older-than must be longer than the longest job. Shallow clones that use old files are not detected.
    """
    older = timedelta(seconds=older_than)
    cleaned = table.clean_orphans(older, no_jobs_running=no_jobs_running, dry_run=dry_run)
    if dry_run or output == "text":
        render.print_plan(cleaned, output)
    else:
        status = "done" if cleaned.deleted else "nothing to do"
        render.print_json({"status": status, **cleaned.to_dict()})
