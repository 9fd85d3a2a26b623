"""The interface of an index kind. The registry finds the kind of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, runtime_checkable

import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.arrays import Int64s
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.options import IndexOptions


class Query(Enum):
    """The queries of users that an index answers: the rows of a filter, the nearest vectors, the best matching
    texts."""

    FILTER = "filter"
    NEAREST = "nearest"
    TEXT = "text"


class Precision(Enum):
    """How an index answers a condition: with exactly its rows, or with a superset to be checked."""

    EXACT = "exact"
    SUPERSET = "superset"


@dataclass(frozen=True)
class Estimate:
    """An upper bound on the cost of a search: parts of the index to be read (pages, zones, postings), rows found, and
    runs of neighboring rows in which they are read. Without `runs`, rows are read one by one."""

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
        """An upper bound on the number of rows, if every covered row has an entry; None otherwise."""
        ...

    def stored_ids(self) -> Iterator[Addresses]:
        """Every id in the files as stored, in any order, regardless of the coverage."""
        ...

    def describe(self) -> Description:
        """The description for the report, from data that is read when a segment is opened."""
        ...

    def warm(self) -> Iterator[None]:
        """Load what queries read into the cache, piece by piece: a caller may stop in between. May raise
        DamagedFile."""
        ...


class FilterSegment(OpenSegment, Protocol):
    """An opened segment that answers conditions on one column. Callers pass only conditions that its kind answers."""

    def estimate(self, condition: Condition) -> Estimate:
        """A cheap estimate, from data that is read when a segment is opened."""
        ...

    def search(self, condition: Condition) -> RowSet:
        """The stored ids of the rows, remapped by the Fragment Reuse Index. They may include deleted rows and rows of
        fragments that the segment does not cover. May raise DamagedFile."""
        ...


@runtime_checkable
class SpreadSegment(Protocol):
    """An opened segment that is sorted by value, so that neighboring values are read together."""

    def spread(self, most: int) -> pa.Array:
        """At most that many of its values, ascending, with about as many rows between each and the next."""
        ...


@runtime_checkable
class PointSegment(Protocol):
    """An opened segment that finds the rows of single values, and which value each of them has."""

    def find(self, values: pa.Array) -> Iterator[tuple[Int64s, Addresses]]:
        """Positions of values, and the stored ids of their rows, remapped by the Fragment Reuse Index, as for
        `FilterSegment.search`. Values are ascending in the order of the index, each once, without NULLs. May raise
        DamagedFile."""
        ...


class IndexKind(Protocol):
    """The properties and operations of an index kind."""

    # The index types that users can create, and the options of each.
    options: ClassVar[Mapping[str, type[IndexOptions]]]

    @property
    def names(self) -> tuple[str, ...]:
        """The index types, which are the keys of `options`."""
        ...

    @property
    def queries(self) -> frozenset[Query]:
        """The queries that its segments answer."""
        ...

    @property
    def type_names(self) -> frozenset[str]:
        """The possible parts after the last slash of a type URL, in lower case."""
        ...

    def claims(self, segment: IndexSegment) -> bool:
        """Whether a segment is of this kind, judged by the manifest."""
        ...

    @property
    def versions(self) -> frozenset[int]:
        """Index versions that can be read."""
        ...

    def supports(self, type_: pa.DataType) -> bool:
        """Whether a column of this type can have such an index."""
        ...

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        """The index type of a segment, one of `names`."""
        ...

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        """Whether a segment's index version determines the meaning of its ids in such a table."""
        ...

    def trusted_coverage(self, segment: IndexSegment) -> FrozenBitMap:
        """The fragments of the manifest entry whose rows the segment's files can contain."""
        ...

    def objection(self, segment: IndexSegment) -> str | None:
        """The reason, judged by the manifest, why a segment of a known version cannot be used."""
        ...

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        """Whether pylance can read a segment if the Fragment Reuse Index no longer maps some of its rows."""
        ...

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        """Whether stored ids are row addresses; they are stable row ids otherwise."""
        ...

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        """How a segment answers a condition on its column; None if it cannot. Reads only the manifest."""
        ...

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> OpenSegment:
        """May raise DamagedFile, or UnsupportedTable. Returns a FilterSegment if the kind answers conditions."""
        ...


class KindDefaults:
    """A base class with the behavior of most kinds: one index type, identified by its type URL; ids are row addresses,
    or stable row ids on tables that have them; files contain the fragments that the manifest entry lists."""

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
