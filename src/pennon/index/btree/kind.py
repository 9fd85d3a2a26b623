"""The B-tree as one of the kinds Pennon knows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pennon.format.index_metadata import ADDRESSES_DESPITE_STABLE_IDS, IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.btree.segment import BTreeSegment
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Family
from pennon.index.value_order import is_orderable


@dataclass(frozen=True)
class BTreeKind:
    family: Family = Family.SCALAR
    names: tuple[str, ...] = ("BTREE",)
    type_url: str = "/lance.table.BTreeIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.table.btreeindexdetails", "lance.index.pb.btreeindexdetails"})
    versions: frozenset[int] = frozenset({0, 1})

    def claims(self, segment: IndexSegment) -> bool:
        return segment.type_name in self.type_names

    def supports(self, type_: pa.DataType) -> bool:
        return is_orderable(type_)

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        return self.names[0]

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        return segment.index_version == self.version_for(stable_row_ids)

    def objection(self, segment: IndexSegment) -> str | None:
        return None

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        return True

    def version_for(self, stable_row_ids: bool) -> int:
        # Stock writes 0 on ordinary tables and 1 on tables with stable row ids; one name may not mix the two.
        return ADDRESSES_DESPITE_STABLE_IDS if stable_row_ids else 0

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return index_version == ADDRESSES_DESPITE_STABLE_IDS or not stable_row_ids

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
