"""The commands that keep a table and its indices in shape."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import Any

import click

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.completion import complete_index
from pennon.cli.errors import print_error, sentence
from pennon.cli.options import dry_run_option, duration, on_table, output_option
from pennon.errors import PennonError
from pennon.jobs.compact.plan import REMAPS
from pennon.jobs.maintain import MaintenancePolicy, MaintenanceReport
from pennon.table import Table
from pennon.wording import plural

USUAL = MaintenancePolicy()

remap_option = click.option(
    "--remap",
    type=click.Choice(REMAPS),
    default=USUAL.remap,
    show_default=True,
    help="How indices follow the rows: rewritten at once, through the Fragment Reuse Index, or not at all.",
)
target_option = click.option(
    "--target-rows-per-fragment",
    type=click.IntRange(min=1),
    default=USUAL.target_rows_per_fragment,
    show_default=True,
    help="Join fragments with fewer rows.",
)
deletions_option = click.option(
    "--deletions-threshold",
    "materialize_deletions_threshold",
    type=click.FloatRange(0, 1),
    default=USUAL.materialize_deletions_threshold,
    show_default=True,
    help="Rewrite fragments with more than this share of deleted rows.",
)


@verb(
    "optimize",
    example="pennon optimize events.lance --index user_id_idx",
)
@on_table
@click.option(
    "--index",
    "index_names",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_index,
    help="Only this index. Can be repeated.  [default: all]",
)
@click.option(
    "--merge",
    "num_indices_to_merge",
    type=click.IntRange(min=0),
    metavar="N",
    help="Merge the newest N segments with the new rows; 0 adds a segment.  [default: by size]",
)
@click.option("--retrain", is_flag=True, help="Rebuild the indices, with models trained on the current rows.")
@dry_run_option
@output_option
def optimize(
    table: Table,
    index_names: tuple[str, ...],
    num_indices_to_merge: int | None,
    retrain: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Cover new fragments and merge segments of the indices of the table at URI."""
    if retrain and num_indices_to_merge is not None:
        raise click.UsageError("--merge and --retrain exclude each other: retraining replaces every segment")
    names = index_names or None
    if dry_run:
        planned = table.plan_optimize(index_names=names, num_indices_to_merge=num_indices_to_merge, retrain=retrain)
        render.print_plan(planned, output)
        return
    result = table.optimize_indices(index_names=names, num_indices_to_merge=num_indices_to_merge, retrain=retrain)
    render.print_result(result, output, with_plan=True)


@verb(
    "compact",
    example="pennon compact events.lance --remap deferred --dry-run",
)
@on_table
@remap_option
@target_option
@deletions_option
@dry_run_option
@output_option
def compact(table: Table, dry_run: bool, output: str, **options: Any) -> None:
    """Join small fragments of the table at URI and drop deleted rows; update the indices."""
    if dry_run:
        render.print_plan(table.plan_compact(**options), output)
    else:
        render.print_result(table.compact(dry_run=False, **options), output, with_plan=True)


@verb(
    "maintain",
    example="pennon maintain events.lance --every 10m",
)
@on_table
@click.option(
    "--every",
    type=duration,
    metavar="DURATION",
    help="Start a pass at this interval until interrupted: 30s, 10m, 2h, 1d.",
)
@click.option("--passes", type=click.IntRange(min=1), hidden=True, help="Stop after this number of passes.")
@dry_run_option
@remap_option
@target_option
@deletions_option
@click.option(
    "--min-fragments-to-compact",
    type=click.IntRange(min=0),
    default=USUAL.min_fragments_to_compact,
    show_default=True,
    help="Compact if it removes at least this many fragments, or enough deleted rows.",
)
@click.option("--no-compact", is_flag=True, help="Skip compaction.")
@click.option("--no-optimize", is_flag=True, help="Skip the optimization of indices.")
@click.option(
    "--max-reuse-versions",
    type=click.IntRange(min=0),
    default=USUAL.max_reuse_versions,
    show_default=True,
    help="Catch up if more compactions than this are not applied.",
)
@click.option(
    "--max-reuse-bytes",
    type=click.IntRange(min=0),
    default=USUAL.max_reuse_bytes,
    show_default=True,
    help="Catch up if the Fragment Reuse Index has more bytes.",
)
@click.option("--no-catch-up", is_flag=True, help="Do not catch up.")
@click.option(
    "--orphan-age",
    type=duration,
    metavar="DURATION",
    default="7d",
    show_default=True,
    help="Delete files that belong to no version and are older than this.",
)
@click.option("--keep-orphans", is_flag=True, help="Do not delete files that belong to no version.")
@click.option(
    "--version-age", type=duration, metavar="DURATION", help="Delete versions older than this.  [default: keep all]"
)
@output_option
@click.pass_context
def maintain(
    ctx: click.Context,
    table: Table,
    every: float | None,
    passes: int | None,
    dry_run: bool,
    output: str,
    **options: Any,
) -> None:
    """Run the maintenance that is due for the table at URI: compact, optimize, catch up, trim, clean up. Reports the
    reason for each step.

    The exit code is 1 if a step failed. With --every, the next pass still runs.
    """
    policy = _policy(**options)
    if every is None:
        report = table.maintain(policy, dry_run=dry_run)
        render.print_json(report.to_dict()) if output == "json" else render.console.print(str(report))
        ctx.exit(1 if report.failed else 0)
    tally = Tally()
    try:
        while True:
            started = monotonic()
            _one_of_many(table, policy, dry_run, output, tally)
            if tally.passes == passes:
                return
            sleep(max(0.0, started + every - monotonic()))
    except KeyboardInterrupt:
        print_error(f"{plural(tally.passes, 'pass', 'passes')}, {tally.failures} failed")
        raise


def _policy(
    *,
    no_compact: bool,
    no_optimize: bool,
    no_catch_up: bool,
    keep_orphans: bool,
    orphan_age: float,
    version_age: float | None,
    **given: Any,
) -> MaintenancePolicy:
    if no_compact:
        given["min_fragments_to_compact"] = None
    if no_catch_up:
        given["max_reuse_versions"] = None
    return MaintenancePolicy(
        optimize_indices=not no_optimize,
        orphan_age_seconds=None if keep_orphans else orphan_age,
        version_age_seconds=version_age,
        **given,
    )


@dataclass
class Tally:
    """Passes so far, and those that failed as a whole or in a step."""

    passes: int = 0
    failures: int = 0

    def count(self, failed: bool) -> None:
        self.passes += 1
        self.failures += failed

    def __str__(self) -> str:
        return f"pass {self.passes}" + (f", {self.failures} failed" if self.failures else "")


def _one_of_many(table: Table, policy: MaintenancePolicy, dry_run: bool, output: str, tally: Tally) -> None:
    """A pass that fails is reported like the others: the next one may find the table in a better state."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    report: MaintenanceReport | None = None
    problem = ""
    try:
        report = table.maintain(policy, dry_run=dry_run)
    except PennonError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001  a Spark session that ended, for one, must not end the passes
        problem = sentence(error)
    tally.count(report is None or bool(report.failed))
    if output == "json":
        outcome = report.to_dict() if report else {"status": "failed", "table": table.uri, "error": problem}
        render.print_json_line({"time": now, "pass": tally.passes, "failures": tally.failures, **outcome})
    elif report:
        render.console.print(f"{now} ({tally}) {report}\n")
    else:
        print_error(f"{now} error: {problem}")
