"""The n-gram kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Precision, Query
from pennon.index.ngram.lookups import tokens_to_look_up
from pennon.index.ngram.options import NGram
from pennon.index.ngram.segment import NGramSegment
from pennon.index.ngram.tokens import is_text
from pennon.index.options import IndexOptions, by_type


@dataclass(frozen=True)
class NGramKind(KindDefaults):
    options: ClassVar[Mapping[str, type[IndexOptions]]] = by_type(NGram)
    names: tuple[str, ...] = tuple(options)
    queries: frozenset[Query] = frozenset({Query.FILTER})
    type_url: str = "/lance.table.NGramIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.table.ngramindexdetails", "lance.index.pb.ngramindexdetails"})
    index_version: int = 0
    versions: frozenset[int] = frozenset({0})

    def supports(self, type_: pa.DataType) -> bool:
        return is_text(type_)

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        return Precision.SUPERSET if tokens_to_look_up(condition) is not None else None

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
