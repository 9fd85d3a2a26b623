"""What is done with a kind of index: built, merged, remapped, repaired and audited. The registry finds it by kind."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pennon.engine import Engine
from pennon.errors import UnsupportedColumn
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.jobs.audit.checksums import Facts, Sums
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, View
from pennon.jobs.shared.remap import MergeSource


@dataclass(frozen=True)
class BuildRequest:
    """How a segment is to be built, for any kind. Without fragments: over all of them."""

    name: str | None
    fragment_ids: Sequence[int] | None
    parallelism: int
    memory_bytes: int
    rows_per_task: int | None = None


@dataclass(frozen=True)
class MergeRequest:
    """Which segments are to become one, for any kind. A merge of one segment remaps it.

    `address_map` is the path of a file with the address map of a running compaction. `ids_unchanged`: every id in the
    files may stay as it is, so that files may be copied. `rebalance` requests what `upkeep` found. `delta` is the plan
    of a segment that will be built first and merged with the others; its files do not exist, so that the plan is an
    estimate that can be printed but not executed.
    """

    sources: tuple[MergeSource, ...]
    address_map: str | None = None
    ids_unchanged: bool = False
    rebalance: bool = False
    delta: BuildPlan | None = None

    @property
    def largest(self) -> IndexSegment:
        """The segment that the new one takes after."""
        return max((source.segment for source in self.sources), key=lambda segment: segment.size_bytes)


class WorkPlan(Protocol):
    """What writing a segment will take, before anything runs. Printable."""

    @property
    def name(self) -> str:
        """The name of the index."""
        ...

    @property
    def rows(self) -> int:
        """Rows that are read."""
        ...

    @property
    def tasks(self) -> int:
        """Tasks that read them."""
        ...

    @property
    def task_memory_bytes(self) -> int:
        """The most a task is expected to hold."""
        ...

    @property
    def index_bytes(self) -> int:
        """Expected size of the files."""
        ...

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        ...


class BuildPlan(WorkPlan, Protocol):
    """How a segment will be built from the data."""

    @property
    def pin(self) -> Pin:
        """The version of the table that is read."""
        ...

    @property
    def field_id(self) -> int:
        """The id of the column in the table's schema."""
        ...

    @property
    def fragments(self) -> tuple[int, ...]:
        """The fragments that the segment will cover."""
        ...


class MergePlan(WorkPlan, Protocol):
    """How a segment will be made of others."""

    @property
    def is_estimate(self) -> bool:
        """Whether a source does not exist yet. Such a plan is not executed."""
        ...


@dataclass(frozen=True)
class PlanContext:
    """What plans are made for: a version of the table, how many tasks run at once, and the memory of each."""

    snapshot: Snapshot
    parallelism: int
    memory_bytes: int

    @classmethod
    def of(cls, engine: Engine, snapshot: Snapshot, memory_bytes: int) -> PlanContext:
        """For an engine that is about to be used; starts it."""
        return cls(snapshot, engine.parallelism, memory_bytes)

    @classmethod
    def without_starting(cls, engine: Engine, snapshot: Snapshot, memory_bytes: int) -> PlanContext:
        """Counts this machine's cores where the engine has not started."""
        return cls(snapshot, engine.parallelism if engine.attached else os.cpu_count() or 1, memory_bytes)

    def column_of(self, segment: IndexSegment) -> Column:
        column = self.snapshot.columns.by_id(segment.field_id)
        if column is None:
            raise UnsupportedColumn(f"the column of index {segment.name!r} of {self.snapshot.uri} is gone", "Drop it")
        return column


@dataclass(frozen=True)
class Upkeep:
    """What the segments of an index need beyond what size and coverage ask for: all of them merged and put in balance,
    or built from the data."""

    reason: str
    rebuild: bool


class KindAudit(Protocol):
    """How the rows of a segment are compared with those of the table."""

    @property
    def scalar(self) -> bool:
        """Whether pylance takes rows from every segment that holds them, as its scalar queries do."""
        ...

    @property
    def repeating(self) -> bool:
        """Whether pylance returns a row as often as segments hold it, as its text searches do."""
        ...

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        """Rows of each part of the segment's files, and what the table has to hold. DamagedFile, UnsupportedTable."""
        ...

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        """What queries would find of a piece, under current addresses. May raise DamagedFile."""
        ...

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        """Sums over the rows of a piece, and whether codes are those of their values. May raise DamagedFile."""
        ...

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> Recall | None:
        """How much a search finds; None where an index answers exactly, or there is nothing to search for."""
        ...


class ExactAudit(ABC):
    """The audit of a kind that answers exactly, or with more rows than asked for: only its rows are compared."""

    repeating: bool = False

    @abstractmethod
    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]: ...

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        sums = Sums.over(piece.subject.fragments)
        for addresses, facts in self.stored_rows(pin, piece):
            sums.add(addresses, facts)
        return sums.filled(), CodeTally()

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> Recall | None:
        return None


@dataclass(frozen=True)
class Recall:
    share: float
    problem: str
    poor: bool


class KindJobs(Protocol):
    """The work on one kind of index. Plans are the kind's own, and only handed back to it."""

    @property
    def audit(self) -> KindAudit: ...

    def plan(self, snapshot: Snapshot, column: str, options: Any, request: BuildRequest) -> BuildPlan:
        """What a build will do; `options` are of one of the classes that the kind lists."""
        ...

    def misfit(self, snapshot: Snapshot, plan: Any, other: IndexSegment) -> str | None:
        """Why the planned segment cannot be in one index with another, as "<what that is>, the new segment <what>"."""
        ...

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool
    ) -> BuildPlan:
        """A segment over some fragments (None: all) that takes after an existing one, with its models unless they are
        to be trained again."""
        ...

    def plan_rebuild(
        self,
        context: PlanContext,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> BuildPlan:
        """A segment from the data in place of segments with errors, whose files may be unreadable."""
        ...

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> MergePlan:
        """One segment with the rows of several."""
        ...

    def build(self, engine: Engine, snapshot: Snapshot, plan: Any) -> IndexSegment:
        """Write the files of a planned segment; the caller commits it."""
        ...

    def build_segments(self, engine: Engine, snapshot: Snapshot, plan: Any) -> tuple[IndexSegment, ...]:
        """Write the files of all segments of a plan for an index, of which a large one may have several; the caller
        commits them together. Plans like an existing segment, without training, have one."""
        ...

    def segments_of(self, plan: Any) -> int:
        """How many segments a plan has."""
        ...

    def merge(self, engine: Engine, snapshot: Snapshot, plan: Any) -> IndexSegment:
        """Write the files of a merged segment; the caller commits it in place of its sources."""
        ...

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        """What the segments of an index need; None: nothing."""
        ...

    @property
    def models_in_files(self) -> bool:
        """Whether a segment cannot be built like another whose files are damaged."""
        ...

    @property
    def segment_bytes(self) -> int | None:
        """The size above which segments are not merged into one because of their number; None: any size."""
        ...


class JobsDefaults(ABC):
    """What most kinds have in common, to inherit from: segments without models, which fit all others of their
    kind and need no special upkeep."""

    models_in_files: bool = False
    segment_bytes: int | None = None

    @abstractmethod
    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> Any: ...

    @abstractmethod
    def build(self, engine: Engine, snapshot: Snapshot, plan: Any) -> IndexSegment: ...

    def build_segments(self, engine: Engine, snapshot: Snapshot, plan: Any) -> tuple[IndexSegment, ...]:
        return (self.build(engine, snapshot, plan),)

    def segments_of(self, plan: Any) -> int:
        return 1

    def misfit(self, snapshot: Snapshot, plan: Any, other: IndexSegment) -> str | None:
        return None

    def plan_rebuild(
        self,
        context: PlanContext,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> Any:
        return self.plan_like(context, (*staying, *leaving)[0], fragments)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        return None
