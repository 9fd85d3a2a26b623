"""What is done with a kind of index: built, merged, remapped, repaired and audited. The registry finds it by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from pennon.jobs.shared.remap import Source


@dataclass(frozen=True)
class BuildRequest:
    """How a segment is to be built, whatever its kind. Without fragments: over all of them."""

    name: str | None
    fragment_ids: Sequence[int] | None
    parallelism: int
    memory_bytes: int
    rows_per_task: int | None = None


class BuildPlan(Protocol):
    """What a build will do, known before it does anything. Printable."""

    @property
    def pin(self) -> Pin: ...

    @property
    def name(self) -> str: ...

    @property
    def field_id(self) -> int: ...

    @property
    def fragments(self) -> tuple[int, ...]: ...

    def to_dict(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class Work:
    """Where and with what segments are written. Nothing here commits."""

    engine: Engine
    snapshot: Snapshot
    memory_bytes: int

    def column_of(self, segment: IndexSegment) -> Column:
        column = self.snapshot.columns.by_id(segment.field_id)
        if column is None:
            raise UnsupportedColumn(f"the column of index {segment.name!r} of {self.snapshot.uri} is gone", "Drop it")
        return column

    def discard(self, segment: IndexSegment) -> None:
        """Remove files that no version names."""
        self.snapshot.store.delete_directory(segment.directory)


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

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        """Rows of each part of the segment's files, and what the table has to hold. DamagedFile, UnsupportedTable."""
        ...

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        """What queries would find of a piece, under today's addresses. May raise DamagedFile."""
        ...

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        """Sums over the rows of a piece, and whether codes are those of their values. May raise DamagedFile."""
        ...

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> Recall | None:
        """How much a search finds; None where an index answers exactly, or there is nothing to search for."""
        ...


@dataclass(frozen=True)
class Recall:
    share: float
    problem: str
    poor: bool


class KindJobs(Protocol):
    """The work on one kind of index. Plans are the kind's own, and only handed back to it."""

    @property
    def audit(self) -> KindAudit: ...

    def option_names(self, index_type: str) -> frozenset[str]:
        """What a user may ask of an index of this type."""
        ...

    def plan(
        self, snapshot: Snapshot, column: str, index_type: str, options: Mapping[str, Any], request: BuildRequest
    ) -> BuildPlan: ...

    def misfit(self, snapshot: Snapshot, plan: Any, other: IndexSegment) -> str | None:
        """Why the planned segment cannot be in one index with another, as "<what that is>, the new segment <what>"."""
        ...

    def build(self, engine: Engine, snapshot: Snapshot, plan: Any) -> IndexSegment:
        """Write the files of a segment; the caller commits it."""
        ...

    def build_like(
        self, work: Work, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool
    ) -> IndexSegment:
        """A segment over some fragments (None: all) that takes after an existing one, with its models unless they are
        to be trained again."""
        ...

    def merge(
        self, work: Work, sources: Sequence[Source], moves: str | None, *, unmoved: bool, rebalance: bool
    ) -> IndexSegment:
        """One segment with the rows of several. `moves` is a compaction under way; `unmoved` means that every id in the
        files may stay as it is; `rebalance` asks for what `upkeep` found."""
        ...

    def rebuild(
        self,
        work: Work,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> IndexSegment:
        """From the data, in place of segments with errors, whose files may be unreadable."""
        ...

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None: ...

    @property
    def models_in_files(self) -> bool:
        """Whether a segment cannot be built like another whose files are damaged."""
        ...
