"""What an index kind is. The registry finds the one a segment was built as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.options import IndexOptions


class Query(Enum):
    """What users ask an index for: the rows of a filter, the nearest vectors, the best matching texts."""

    FILTER = "filter"
    NEAREST = "nearest"
    TEXT = "text"


class Precision(Enum):
    """How an index answers a condition: with its very rows, or with more of them, to be checked."""

    EXACT = "exact"
    SUPERSET = "superset"


@dataclass(frozen=True)
class Estimate:
    """What a search costs at most, known from what is read first: parts of the index to be read (pages, zones,
    postings), rows found, and runs of neighboring rows that those are read in. Without `runs`, every row by itself."""

    pages: int
    rows: int
    runs: int | None = None

    @property
    def row_runs(self) -> int:
        return self.rows if self.runs is None else self.runs

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.pages + other.pages, self.rows + other.rows, self.row_runs + other.row_runs)


class OpenSegment(Protocol):
    """A segment, opened and checked."""

    @property
    def capacity(self) -> int | None:
        """How many rows it can hold at most, where every covered row has an entry; None where that is not so."""
        ...

    def stored_ids(self) -> Iterator[Addresses]:
        """Every id in the files as it is there, in any order, whatever the coverage is."""
        ...

    def describe(self) -> Description:
        """For the report, from what is read when it is opened."""
        ...


class FilterSegment(OpenSegment, Protocol):
    """An opened segment that answers conditions on one column. Only conditions that its kind answers are asked."""

    def estimate(self, condition: Condition) -> Estimate:
        """From what is read when a segment is opened; cheap."""
        ...

    def search(self, condition: Condition) -> RowSet:
        """The stored ids of the rows, at the addresses that the Fragment Reuse Index maps them to. Deleted rows and
        rows of fragments that the segment does not cover may be among them. May raise DamagedFile."""
        ...


class IndexKind(Protocol):
    """What every kind of index knows about itself."""

    # The index types that users ask for when they create one, and the options of each.
    options: ClassVar[Mapping[str, type[IndexOptions]]]

    @property
    def names(self) -> tuple[str, ...]:
        """The index types, which are the keys of `options`."""
        ...

    @property
    def queries(self) -> frozenset[Query]:
        """What its segments can be asked for."""
        ...

    @property
    def type_names(self) -> frozenset[str]:
        """What may follow the last slash of a type URL, in lower case."""
        ...

    def claims(self, segment: IndexSegment) -> bool:
        """Whether a segment is of this kind, as far as the manifest records it."""
        ...

    @property
    def versions(self) -> frozenset[int]:
        """Index versions that can be read."""
        ...

    def supports(self, type_: pa.DataType) -> bool:
        """Whether a column of this type can have such an index."""
        ...

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        """Which of its names a segment has."""
        ...

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        """Whether a segment's index version determines what its ids mean in such a table."""
        ...

    def trusted_coverage(self, segment: IndexSegment) -> FrozenBitMap:
        """The fragments listed in the manifest entry that the segment's files can hold rows of."""
        ...

    def objection(self, segment: IndexSegment) -> str | None:
        """Why a segment of a known version cannot be used, as far as the manifest records it."""
        ...

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        """Whether pylance can read a segment some of whose rows the Fragment Reuse Index no longer leads to."""
        ...

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        """Whether stored ids are row addresses; they are stable row ids otherwise."""
        ...

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        """How a segment answers a condition on its column; None: not at all. Only the manifest is read."""
        ...

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> OpenSegment:
        """May raise DamagedFile, or UnsupportedTable. A FilterSegment where the kind answers conditions."""
        ...


class KindDefaults:
    """What most kinds have in common, to inherit from: one index type, known by its type URL; ids by row address, or by
    stable row id on tables that have them; files that hold what the manifest entry lists."""

    names: tuple[str, ...]
    type_names: frozenset[str]
    versions: frozenset[int]

    def claims(self, segment: IndexSegment) -> bool:
        return segment.type_name in self.type_names

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        return self.names[0]

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        return segment.index_version in self.versions

    def trusted_coverage(self, segment: IndexSegment) -> FrozenBitMap:
        return segment.fragments

    def objection(self, segment: IndexSegment) -> str | None:
        return None

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        return True

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return not stable_row_ids

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        return None
