"""The family of vector indices: seven types, opened in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pennon.deferred import deferred
from pennon.errors import PennonError, StoreUnavailable
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Query
from pennon.index.options import IndexOptions, OptionsByType
from pennon.index.vector.files.recorded import (
    AUXILIARY_FILE,
    INDEX_FILE,
    OLDER_LAYOUT,
    TYPE_NAMES,
    TYPE_URL,
    has_graph,
    unknown_metric,
)
from pennon.index.vector.vectors import is_vector_type

if TYPE_CHECKING:
    from pennon.index.vector.files.details import VectorDetails
    from pennon.index.vector.files.storage import read_kind
    from pennon.index.vector.kinds import SubIndex, VectorKind
    from pennon.index.vector.metric import Metric
    from pennon.index.vector.search.segment import VectorSegment
else:
    VectorDetails = deferred("pennon.index.vector.files.details", "VectorDetails")
    read_kind = deferred("pennon.index.vector.files.storage", "read_kind")
    SubIndex = deferred("pennon.index.vector.kinds", "SubIndex")
    VectorSegment = deferred("pennon.index.vector.search.segment", "VectorSegment")


@dataclass(frozen=True)
class VectorFamily(KindDefaults):
    queries: frozenset[Query] = frozenset({Query.NEAREST})
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType(
        "pennon.index.vector.options",
        IVF_FLAT="IvfFlat",
        IVF_PQ="IvfPq",
        IVF_SQ="IvfSq",
        IVF_RQ="IvfRq",
        IVF_HNSW_FLAT="IvfHnswFlat",
        IVF_HNSW_PQ="IvfHnswPq",
        IVF_HNSW_SQ="IvfHnswSq",
    )
    names: tuple[str, ...] = tuple(options)
    type_url: str = TYPE_URL
    type_names: frozenset[str] = TYPE_NAMES
    versions: frozenset[int] = frozenset({0, 1, 2})

    def claims(self, segment: IndexSegment) -> bool:
        # Older writers left the details out.
        return segment.type_name in self.type_names or (not segment.type_url and INDEX_FILE in segment.file_sizes)

    def supports(self, type_: pa.DataType) -> bool:
        return is_vector_type(type_)

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        known = self.described(snapshot, segment)
        return known[0].name if known else "VECTOR"

    def described(self, snapshot: Snapshot, segment: IndexSegment) -> tuple[VectorKind, Metric] | None:
        """Kind and metric from the details, or from the file if the details are empty, as by older writers. None if
        unknown."""
        try:
            details = VectorDetails.from_bytes(segment.details)
            if details is not None:
                return details.kind, details.metric
            return read_kind(snapshot.store, segment.directory, segment.file_sizes)
        except StoreUnavailable:
            raise
        except PennonError:
            return None

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        return True

    def objection(self, segment: IndexSegment) -> str | None:
        metric = unknown_metric(segment.details)
        if metric is not None:
            return f"a vector index for the metric {metric}, which Pennon does not support"
        return OLDER_LAYOUT if INDEX_FILE in segment.file_sizes and AUXILIARY_FILE not in segment.file_sizes else None

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        """pylance drops lost rows from the codes when it loads them, finds that the graph is larger, and fails the
        search."""
        if segment.details:
            return not has_graph(segment.details)
        known = self.described(snapshot, segment)
        return known is None or known[0].sub_index is not SubIndex.HNSW

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> VectorSegment:
        moves = self.stores_addresses(segment.index_version, snapshot.manifest.has_stable_row_ids)
        return VectorSegment(snapshot.store, segment, column.type, cache, reuse if moves else None)


VECTOR = VectorFamily()
