"""The B-tree kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.deferred import deferred
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.btree.segment_uuid import fragments_below
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Precision, Query
from pennon.index.options import IndexOptions, OptionsByType
from pennon.index.value_order import is_orderable

if TYPE_CHECKING:
    from pennon.index.btree.segment import BTreeSegment
else:
    BTreeSegment = deferred("pennon.index.btree.segment", "BTreeSegment")

# The index version of trees on tables with stable row ids. They hold addresses there, too.
ADDRESSES_DESPITE_STABLE_IDS = 1


@dataclass(frozen=True)
class BTreeKind(KindDefaults):
    queries: frozenset[Query] = frozenset({Query.FILTER})
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType("pennon.index.btree.options", BTREE="BTree")
    names: tuple[str, ...] = tuple(options)
    type_url: str = "/lance.table.BTreeIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.table.btreeindexdetails", "lance.index.pb.btreeindexdetails"})
    versions: frozenset[int] = frozenset({0, 1})

    def supports(self, type_: pa.DataType) -> bool:
        return is_orderable(type_)

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        return segment.index_version == self.version_for(stable_row_ids)

    def trusted_coverage(self, segment: IndexSegment) -> FrozenBitMap:
        """The coverage without fragments that only pylance 13 or older added to the entry; see `segment_uuid`."""
        if segment.index_version != ADDRESSES_DESPITE_STABLE_IDS or not segment.fragments:
            return segment.fragments
        limit = fragments_below(UUID(segment.uuid))
        if limit is None or segment.fragments.max() < limit:
            return segment.fragments
        return segment.fragments & FrozenBitMap(range(limit))

    def version_for(self, stable_row_ids: bool) -> int:
        # pylance writes 0 on ordinary tables and 1 on tables with stable row ids; one name may not mix the two.
        return ADDRESSES_DESPITE_STABLE_IDS if stable_row_ids else 0

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return index_version == ADDRESSES_DESPITE_STABLE_IDS or not stable_row_ids

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        return Precision.EXACT if isinstance(condition, ColumnRanges) else None

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> BTreeSegment:
        return BTreeSegment(snapshot.store, segment, column.type, cache, reuse)


BTREE = BTreeKind()
