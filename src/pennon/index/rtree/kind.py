"""The R-tree kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pennon.deferred import deferred
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.segment_contents import CONTENTS_FILE
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition, MeetsBox
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Precision, Query
from pennon.index.options import IndexOptions, OptionsByType

if TYPE_CHECKING:
    from pennon.index.rtree.geometries import has_boxes
    from pennon.index.rtree.segment import RTreeSegment
else:
    has_boxes = deferred("pennon.index.rtree.geometries", "has_boxes")
    RTreeSegment = deferred("pennon.index.rtree.segment", "RTreeSegment")


@dataclass(frozen=True)
class RTreeKind(KindDefaults):
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType("pennon.index.rtree.options", RTREE="RTree")
    names: tuple[str, ...] = tuple(options)
    queries: frozenset[Query] = frozenset({Query.FILTER})
    type_url: str = "/lance.index.pb.RTreeIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.index.pb.rtreeindexdetails", "lance.table.rtreeindexdetails"})
    index_version: int = 0
    versions: frozenset[int] = frozenset({0})

    def supports(self, type_: pa.DataType) -> bool:
        return has_boxes(type_)

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        if isinstance(condition, MeetsBox):
            return Precision.SUPERSET
        if not (isinstance(condition, ColumnRanges) and condition.nulls and not condition.spans):
            return None
        # pylance's optimize keeps the NULLs of fragments whose values were changed in place next to the new ones.
        return Precision.EXACT if CONTENTS_FILE in segment.file_sizes else Precision.SUPERSET

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> RTreeSegment:
        return RTreeSegment(snapshot.store, segment, cache, reuse)


RTREE = RTreeKind()
