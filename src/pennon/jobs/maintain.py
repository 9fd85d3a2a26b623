"""One maintenance pass: inspect a table, decide which steps are due, report why, and run them.

The steps are in an order in which each makes the next cheaper: compaction first, then the indices over its fragments,
then segments that still name old addresses, then recorded compactions that no file needs, then files that no version
names. Every step reads the newest version and commits separately, so that a pass may be stopped anywhere, run twice, or
run concurrently with others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import get_type_hints

from pennon.display import Displayed, DisplayedFields
from pennon.engine import Engine
from pennon.errors import CommitConflict, InvalidArgument, PennonError, StoreUnavailable, UnsupportedTable
from pennon.format.cleanup import ORPHAN_AGE, clean_up, delete_orphans, is_old, old_versions, orphans
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.clean_orphans import counted, refuse_young
from pennon.jobs.compact.compact import compact
from pennon.jobs.compact.plan import REMAPS, CompactPlan, plan_compact
from pennon.jobs.fragment_reuse.catch_up import catch_up
from pennon.jobs.fragment_reuse.trim import may_trim, trim
from pennon.jobs.kinds import PlanContext
from pennon.jobs.optimize.optimize import optimize
from pennon.jobs.optimize.plan import plan_optimize
from pennon.jobs.optimize.steps import IndexStep
from pennon.jobs.shared.arguments import check_type
from pennon.wording import human_age, human_bytes, in_line, joined_names, plural
from pennon.work import NO_WORK, Work, working

# What a step did: in words, and the numbers in them.
Outcome = tuple[str, dict[str, int]]
# Attempts at a step that conflicts with other writers; each is planned again.
ATTEMPTS = 3


@dataclass(frozen=True)
class MaintenancePolicy(DisplayedFields):
    """The conditions under which steps are due. None disables a step."""

    remap: str = "immediate"
    target_rows_per_fragment: int = 1_048_576
    materialize_deletions_threshold: float = 0.1
    min_fragments_to_compact: int | None = 4  # fragments that a compaction saves, unless it drops deleted rows
    optimize_indices: bool = True
    max_reuse_versions: int | None = 4  # recorded compactions that index files do not reflect yet
    max_reuse_bytes: int = 1 << 20
    orphan_age_seconds: float | None = ORPHAN_AGE
    version_age_seconds: float | None = None  # old versions are history, and kept by default

    def __post_init__(self) -> None:
        if self.remap not in REMAPS:
            raise InvalidArgument(f"remap={self.remap!r} is unknown", f"Choose among {', '.join(REMAPS)}")
        for name, hint in get_type_hints(type(self)).items():
            check_type(name, getattr(self, name), hint)
        if self.orphan_age_seconds is not None:
            refuse_young(self.orphan_age_seconds, "clean orphans apart from maintenance")


class MaintenanceStatus(StrEnum):
    """The status of a step. After a conflict with other writers it is due again, which is not a failure."""

    NOT_DUE = "not due"
    DUE = "due"
    DONE = "done"
    CONFLICT = "conflict"
    FAILED = "failed"


@dataclass(frozen=True)
class Decision(Displayed):
    """One step: whether it is due, the reason, and the result; `outcome` is empty in a dry run. `figures` are the
    numbers in both sentences."""

    step: str
    due: bool
    reason: str
    outcome: str = ""
    seconds: float = 0.0
    ended: MaintenanceStatus | None = None
    figures: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def status(self) -> MaintenanceStatus:
        """How it ended, or whether it is due."""
        return self.ended or (MaintenanceStatus.DUE if self.due else MaintenanceStatus.NOT_DUE)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "step": self.step,
            "due": self.due,
            "status": self.status.value,
            "reason": self.reason,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "figures": dict(self.figures),
        }

    def __str__(self) -> str:
        mark = "due" if self.due else "not due"
        done = f"\n{'':11}-> {in_line(self.outcome)} ({self.seconds:.1f} s)" if self.outcome else ""
        return f"{self.step:10} {mark}: {in_line(self.reason)}{done}"


@dataclass(frozen=True)
class MaintenanceReport(Displayed):
    """What a pass of maintenance decided, and did, step by step; `version` is the newest one after it."""

    uri: str
    version: int
    decisions: tuple[Decision, ...]
    work: Work = NO_WORK
    """What was read and exchanged for it."""

    @property
    def due(self) -> tuple[Decision, ...]:
        """Steps that are due, or were."""
        return tuple(decision for decision in self.decisions if decision.due)

    @property
    def failed(self) -> tuple[Decision, ...]:
        """Steps that failed, other than by a conflict with other writers."""
        return tuple(decision for decision in self.decisions if decision.status is MaintenanceStatus.FAILED)

    @property
    def status(self) -> str:
        """The worst of the steps: `failed`, `conflict`, `done`, `due` in a dry run, or `nothing to do`."""
        ended = {decision.status for decision in self.decisions}
        order = (MaintenanceStatus.FAILED, MaintenanceStatus.CONFLICT, MaintenanceStatus.DONE, MaintenanceStatus.DUE)
        return next((status.value for status in order if status in ended), "nothing to do")

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "status": self.status,
            "table": self.uri,
            "version": self.version,
            "failed": len(self.failed),
            "decisions": [decision.to_dict() for decision in self.decisions],
            "work": self.work.to_dict(),
        }

    def __str__(self) -> str:
        return "\n".join([f"{in_line(self.uri)}, version {self.version}", *map(str, self.decisions)])


def maintain(
    engine: Engine, snapshot: Snapshot, policy: MaintenancePolicy, memory_bytes: int, *, dry_run: bool
) -> tuple[Snapshot, MaintenanceReport]:
    work = _Pass(engine, snapshot.latest(), policy, memory_bytes)
    steps = [work.compact, work.optimize, work.catch_up, work.trim, work.orphans, work.versions]
    decisions = tuple(step(dry_run=dry_run) for step in steps)
    return work.snapshot, MaintenanceReport(snapshot.uri, work.snapshot.version, decisions)


@dataclass
class _Pass:
    engine: Engine
    snapshot: Snapshot
    policy: MaintenancePolicy
    memory_bytes: int
    _caught_up: bool = False

    def compact(self, *, dry_run: bool) -> Decision:
        policy = self.policy
        if policy.min_fragments_to_compact is None:
            return Decision("compact", False, "switched off")

        def plan() -> CompactPlan:
            return plan_compact(
                self.snapshot,
                {
                    "target_rows_per_fragment": policy.target_rows_per_fragment,
                    "materialize_deletions_threshold": policy.materialize_deletions_threshold,
                },
                "immediate" if self.snapshot.manifest.has_stable_row_ids else policy.remap,
            )

        least = policy.min_fragments_to_compact
        first = plan()
        gain = sum(len(task.fragments) - -(-task.rows // policy.target_rows_per_fragment) for task in first.tasks)
        dropped = first.deleted_rows >= policy.materialize_deletions_threshold * max(1, first.rows + first.deleted_rows)
        fragments = plural(len(self.snapshot.manifest.fragments), "fragment")
        figures = {
            "fragments": len(self.snapshot.manifest.fragments),
            "fragments_saved": gain,
            "rows": first.rows,
            "deleted_rows": first.deleted_rows,
        }
        if not first.due or (gain < least and not (first.deleted_rows and dropped)):
            reason = f"{fragments}; compaction would remove {gain}, fewer than {least}"
            return Decision("compact", False, f"{reason}; {first}" if first.held_back else reason, figures=figures)
        reason = f"{fragments}; {first.fragments} can become {first.fragments - gain}"
        if first.deleted_rows:
            reason += f", {first.deleted_rows:,} deleted rows can go"

        def run() -> Outcome:
            planned = plan()
            self.snapshot = compact(self.engine, self.snapshot, planned, self.memory_bytes)
            return str(planned), {"fragments_rewritten": planned.fragments, "rows_rewritten": planned.rows}

        return self._decide("compact", reason, figures, run, dry_run)

    def optimize(self, *, dry_run: bool) -> Decision:
        if not self.policy.optimize_indices:
            return Decision("optimize", False, "switched off")
        plan = plan_optimize(PlanContext.without_starting(self.engine, self.snapshot, self.memory_bytes))
        if not plan.due:
            return Decision("optimize", False, _grouped(plan.steps) or "the table has no indices")
        figures = {"indices_due": len(plan.due), "rows_due": sum(step.rows for step in plan.due)}

        def run() -> Outcome:
            started = PlanContext.of if plan.needs_engine else PlanContext.without_starting
            planned = plan_optimize(started(self.engine, self.snapshot, self.memory_bytes))
            self.snapshot = optimize(self.engine, self.snapshot, planned, self.memory_bytes)
            rows = sum(step.rows for step in planned.due)
            done = f"{plural(len(planned.due), 'index', 'indices')} optimized, {rows:,} rows written"
            return done, {"indices_optimized": len(planned.due), "rows_written": rows}

        return self._decide("optimize", _grouped((*plan.due, *plan.skipped)), figures, run, dry_run)

    def catch_up(self, *, dry_run: bool) -> Decision:
        reuse, policy = read_fragment_reuse(self.snapshot), self.policy
        if reuse is None:
            return Decision("catch up", False, "no compactions are recorded")
        recorded = f"{plural(len(reuse.versions), 'compaction')} recorded, {human_bytes(reuse.size_bytes)}"
        figures = {"compactions": len(reuse.versions), "reuse_bytes": reuse.size_bytes}
        if reuse.tagged:
            reason = f"{recorded}, in the newer form that Pennon does not write"
            return Decision("catch up", False, reason, figures=figures)
        most = policy.max_reuse_versions
        if most is None or (len(reuse.versions) <= most and reuse.size_bytes <= policy.max_reuse_bytes):
            allowed = "any number" if most is None else f"up to {most} and {human_bytes(policy.max_reuse_bytes)}"
            return Decision("catch up", False, f"{recorded}; {allowed} are allowed", figures=figures)

        def run() -> Outcome:
            self.snapshot, done = catch_up(self.engine, self.snapshot, self.memory_bytes)
            self._caught_up = True
            return f"{plural(done, 'segment')} rewritten", {"segments_rewritten": done}

        reason = f"{recorded}, more than {most} or {human_bytes(policy.max_reuse_bytes)}"
        return self._decide("catch up", reason, figures, run, dry_run)

    def trim(self, *, dry_run: bool) -> Decision:
        reuse = read_fragment_reuse(self.snapshot)
        if reuse is None or reuse.tagged:
            why = "no compactions are recorded" if reuse is None else "compactions in the tagged form stay"
            return Decision("trim", False, why)

        recorded = f"{plural(len(reuse.versions), 'compaction')} recorded"
        figures = {"compactions": len(reuse.versions)}
        if not self._caught_up and not may_trim(self.snapshot, reuse):
            return Decision("trim", False, f"{recorded}, all still needed by index segments", figures=figures)

        def run() -> Outcome:
            self.snapshot, done = trim(self.engine, self.snapshot)
            left = f", {len(done.needed)} needed by index files" if done.needed else ""
            counts = {"compactions_removed": len(done.removable), "compactions_needed": len(done.needed)}
            return f"{plural(len(done.removable), 'compaction')} removed{left}", counts

        return self._decide("trim", recorded, figures, run, dry_run)

    def orphans(self, *, dry_run: bool) -> Decision:
        age = self.policy.orphan_age_seconds
        if age is None:
            return Decision("orphans", False, "switched off")
        try:
            found = orphans(self.snapshot, store_clock=not dry_run)
        except UnsupportedTable as error:
            return Decision("orphans", False, f"could not be listed: {error.problem}")
        except StoreUnavailable:
            raise
        except PennonError as error:
            return Decision(
                "orphans", True, "orphans could not be listed", f"failed: {error}", ended=MaintenanceStatus.FAILED
            )
        old = [orphan for orphan in found if is_old(orphan, age)]
        left_over = f"{counted(found)} in no version" if found else "every file belongs to a version"
        if not old:
            left = f", none of them known to be older than {human_age(age)}" if found else ""
            return Decision("orphans", False, left_over + left, figures={"orphans": len(found), "orphans_old": 0})
        figures = {"orphans": len(found), "orphans_old": len(old)}

        def run() -> Outcome:
            gone = delete_orphans(self.snapshot, age).deleted
            size = sum(orphan.size_bytes or 0 for orphan in gone)
            return f"{len(gone)} deleted, {human_bytes(size)}", {"orphans_deleted": len(gone), "bytes_deleted": size}

        return self._decide("orphans", f"{left_over}, {len(old)} older than {human_age(age)}", figures, run, dry_run)

    def versions(self, *, dry_run: bool) -> Decision:
        age = self.policy.version_age_seconds
        if age is None:
            return Decision("versions", False, "old versions are kept")

        old = old_versions(self.snapshot, age)
        outdated = f"{plural(old, 'version')} older than {human_age(age)}"
        if not old:
            return Decision("versions", False, outdated, figures={"versions_old": 0})

        def run() -> Outcome:
            done = clean_up(self.snapshot, age)
            counts = {"versions_deleted": done.versions, "bytes_deleted": done.bytes}
            return f"{plural(done.versions, 'version')} deleted, {human_bytes(done.bytes)}", counts

        return self._decide("versions", outdated, {"versions_old": old}, run, dry_run)

    def _decide(
        self, step: str, reason: str, figures: Mapping[str, float], run: Callable[[], Outcome], dry_run: bool
    ) -> Decision:
        """Run a step unless `dry_run`. Conflicts with other writers are not failures: the step is due again, now or in
        the next pass. A step that fails for another reason does not stop the other steps."""
        if dry_run:
            return Decision(step, True, reason, figures=figures)
        started = time.monotonic()
        outcome, status, done = "", MaintenanceStatus.DONE, dict[str, int]()
        for _ in range(ATTEMPTS):
            try:
                with working(step):
                    (outcome, done), status = run(), MaintenanceStatus.DONE
                break
            except CommitConflict as conflict:
                outcome, status = f"conflict: {conflict}", MaintenanceStatus.CONFLICT
                self.snapshot = self.snapshot.latest()
            except StoreUnavailable:
                raise  # all other steps would fail too
            except PennonError as error:
                outcome, status = f"failed: {error}", MaintenanceStatus.FAILED
                break
        seconds = time.monotonic() - started
        return Decision(step, True, reason, outcome, seconds, status, {**figures, **done})


def _grouped(steps: Sequence[IndexStep]) -> str:
    """What each index needs, in one line; indices that need the same are named together."""
    names: dict[str, list[str]] = {}
    for step in steps:
        names.setdefault(step.work_summary, []).append(step.name)
    return in_line("; ".join(f"{joined_names(some)}: {work}" for work, some in names.items()))
