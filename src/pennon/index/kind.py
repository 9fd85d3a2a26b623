"""Index kinds and the registry that finds the one a segment was built as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyroaring import BitMap

from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse import FragmentReuse
from pennon.index.intervals import Interval


class ScalarSegment(Protocol):
    """An opened segment that answers predicates on one column."""

    def search(self, intervals: Sequence[Interval], nulls: bool) -> Addresses: ...

    def estimate(self, intervals: Sequence[Interval], nulls: bool) -> Estimate: ...

    def held_fragments(self) -> BitMap:
        """Fragments of the addresses in the files, whatever the coverage says. Reads every id."""
        ...


@dataclass(frozen=True)
class Estimate:
    """What a search would cost at most, known from the lookup alone."""

    pages: int
    rows: int


class IndexKind(Protocol):
    """What every kind of index can say of itself."""

    @property
    def name(self) -> str: ...

    @property
    def type_url(self) -> str: ...

    @property
    def type_names(self) -> frozenset[str]:
        """What may stand after the last slash of a type URL, in lower case."""
        ...

    @property
    def versions(self) -> frozenset[int]:
        """Index versions that can be read."""
        ...

    def supports(self, type_: pa.DataType) -> bool:
        """Whether a column of this type can carry such an index."""
        ...

    def version_for(self, stable_row_ids: bool) -> int:
        """The index version to write, which also says what the stored ids mean."""
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
    ) -> ScalarSegment: ...
