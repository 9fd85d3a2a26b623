"""The n-gram index as one of the kinds Pennon knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition, ContainsText
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Precision, Query
from pennon.index.ngram.options import NGram
from pennon.index.ngram.segment import NGramSegment, looked_up
from pennon.index.ngram.tokens import is_text
from pennon.index.options import IndexOptions, by_type


@dataclass(frozen=True)
class NGramKind:
    options: ClassVar[Mapping[str, type[IndexOptions]]] = by_type(NGram)
    names: tuple[str, ...] = tuple(options)
    queries: frozenset[Query] = frozenset({Query.FILTER})
    type_url: str = "/lance.table.NGramIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.table.ngramindexdetails", "lance.index.pb.ngramindexdetails"})
    index_version: int = 0
    versions: frozenset[int] = frozenset({0})

    def claims(self, segment: IndexSegment) -> bool:
        return segment.type_name in self.type_names

    def supports(self, type_: pa.DataType) -> bool:
        return is_text(type_)

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        return self.names[0]

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        return segment.index_version == self.index_version

    def trusted_coverage(self, segment: IndexSegment) -> FrozenBitMap:
        return segment.fragments

    def objection(self, segment: IndexSegment) -> str | None:
        return None

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        return True

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return not stable_row_ids

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        served = isinstance(condition, ContainsText) and len(looked_up(condition.pieces)) > 0
        return Precision.SUPERSET if served else None

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> NGramSegment:
        return NGramSegment(snapshot.store, segment, cache, reuse)


NGRAM = NGramKind()
