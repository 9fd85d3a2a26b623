"""What an index kind is. The registry finds the one a segment was built as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.intervals import Interval


class Family(Enum):
    """What an index answers: which rows satisfy a predicate, or which vectors are nearest to one."""

    SCALAR = "scalar"
    VECTOR = "vector"


class OpenSegment(Protocol):
    """A segment, opened and checked."""

    def stored_ids(self) -> Iterator[Addresses]:
        """Every id in the files as it stands there, in any order, whatever the coverage says."""
        ...


class ScalarSegment(OpenSegment, Protocol):
    """An opened segment that answers predicates on one column."""

    @property
    def capacity(self) -> int:
        """How many rows it can hold at most."""
        ...

    def search(self, intervals: Sequence[Interval], nulls: bool) -> Addresses: ...

    def estimate(self, intervals: Sequence[Interval], nulls: bool) -> Estimate: ...


@dataclass(frozen=True)
class Estimate:
    """What a search would cost at most, known from the lookup alone."""

    pages: int
    rows: int


class IndexKind(Protocol):
    """What every kind of index can say of itself."""

    @property
    def family(self) -> Family: ...

    @property
    def names(self) -> tuple[str, ...]:
        """What users ask for when they create one."""
        ...

    @property
    def type_names(self) -> frozenset[str]:
        """What may stand after the last slash of a type URL, in lower case."""
        ...

    def claims(self, segment: IndexSegment) -> bool:
        """Whether a segment is of this kind, as far as the manifest tells."""
        ...

    @property
    def versions(self) -> frozenset[int]:
        """Index versions that can be read."""
        ...

    def supports(self, type_: pa.DataType) -> bool:
        """Whether a column of this type can carry such an index."""
        ...

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        """Which of its names a segment goes by."""
        ...

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        """Whether a segment's index version says what its ids mean in such a table."""
        ...

    def objection(self, segment: IndexSegment) -> str | None:
        """Why a segment of a known version cannot be used, as far as the manifest tells."""
        ...

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        """Whether pylance can read a segment some of whose rows the Fragment Reuse Index no longer leads to."""
        ...

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        """Whether stored ids are row addresses; they are stable row ids otherwise."""
        ...

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> OpenSegment: ...
