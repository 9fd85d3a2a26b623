"""The plan of an optimization: one step for each index, with the plans of its kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap

from pennon.display import Displayed
from pennon.format.index_metadata import IndexSegment
from pennon.jobs.kinds import BuildPlan, MergePlan, WorkPlan
from pennon.jobs.shared.placement import in_process, place_of
from pennon.jobs.shared.remap import MergeSource
from pennon.wording import human_bytes, in_line, in_lines, plural


@dataclass(frozen=True)
class IndexStep(Displayed):
    """What will be done to one index.

    `merged` segments leave the table for one new segment, which also covers `new` fragments; so do `discarded` ones,
    whose files are not read. `build` writes what is not in files: the new fragments as a delta, or with `rebuilt` the
    whole index, which may have several segments then: `written`. `merge` joins the merged segments, and the delta
    where there is one: that plan is an estimate until the delta exists. The new segment takes after `like`. A `skipped`
    index is one that Pennon does not support.
    """

    name: str
    type: str
    segments: int
    reason: str
    like: IndexSegment = field(repr=False)
    merged: tuple[MergeSource, ...] = field(default=(), repr=False)
    discarded: tuple[IndexSegment, ...] = field(default=(), repr=False)
    new: tuple[int, ...] = field(default=(), repr=False)
    rows: int = 0
    written: int = 0
    rebuilt: bool = False
    rebalanced: bool = False
    skipped: bool = False
    build: BuildPlan | None = field(default=None, repr=False)
    merge: MergePlan | None = field(default=None, repr=False)

    @property
    def due(self) -> bool:
        """Whether it changes something."""
        return bool(self.merged or self.discarded or self.new)

    @property
    def leaving(self) -> tuple[IndexSegment, ...]:
        """Segments that leave the table."""
        return (*(source.segment for source in self.merged), *self.discarded)

    @property
    def fragments(self) -> list[int]:
        """What the new segment covers."""
        return list(BitMap(self.new).union(*(source.coverage for source in self.merged)))

    @property
    def segments_after(self) -> int:
        """Segments that the index will have."""
        return self.segments - len(self.leaving) + self.written if self.due else self.segments

    @property
    def action(self) -> str:
        """What is done, in a word or two."""
        if not self.due:
            return "skip" if self.skipped else "leave"
        if self.rebuilt:
            return "rebuild"
        return "merge" if self.leaving else "add a delta"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "index": self.name,
            "type": self.type,
            "action": self.action,
            "segments": self.segments,
            "segments_after": self.segments_after,
            "replaced": [segment.uuid for segment in self.leaving],
            "new_fragments": list(self.new),
            "rows": self.rows,
            "reason": self.reason,
            "build": self.build.to_dict() if self.build else None,
            "merge": self.merge.to_dict() if self.merge else None,
        }

    @property
    def summary(self) -> str:
        """One line."""
        return in_line(f"{self.name}: {self.work_summary}")

    @property
    def work_summary(self) -> str:
        """The line without the index's name."""
        if not self.due:
            return f"{'skipped' if self.skipped else 'nothing to do'}, {self.reason}"
        what = f"{plural(self.segments, 'segment')} -> {self.segments_after}"
        return f"{self.action}, {what}, {self.rows:,} rows written ({self.reason})"

    def __str__(self) -> str:
        lines = [self.summary]
        if self.build is not None:
            lines.append(f"  build  {_work(self.build, 'about ')}")
        if self.merge is not None:
            lines.append(f"  merge  {_work(self.merge, 'about ' if self.merge.is_estimate else '')}")
        return in_lines(lines)


@dataclass(frozen=True)
class OptimizePlan(Displayed):
    """What `optimize` does to a version of a table, index by index."""

    version: int
    steps: tuple[IndexStep, ...]

    @property
    def due(self) -> tuple[IndexStep, ...]:
        """Steps that change something."""
        return tuple(step for step in self.steps if step.due)

    @property
    def needs_engine(self) -> bool:
        """Whether a step is too large for this process."""
        return any(not in_process(plan) for step in self.due for plan in (step.build, step.merge) if plan)

    @property
    def skipped(self) -> tuple[IndexStep, ...]:
        """Indices of kinds that Pennon does not support."""
        return tuple(step for step in self.steps if step.skipped)

    def to_dict(self) -> dict[str, object]:
        return {"version": self.version, "steps": [step.to_dict() for step in self.steps]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "the table has no indices"


def _work(plan: WorkPlan, about: str) -> str:
    rows, tasks = plural(plan.rows, "row"), plural(plan.tasks, "task")
    memory, size = human_bytes(plan.task_memory_bytes), human_bytes(plan.index_bytes)
    return f"{about}{rows} in {tasks}, about {memory} a task, files of about {size}{place_of(plan)}"
