"""The n-gram kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pennon.deferred import deferred
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Precision, Query
from pennon.index.options import IndexOptions, OptionsByType

if TYPE_CHECKING:
    from pennon.index.ngram.lookups import tokens_to_look_up
    from pennon.index.ngram.segment import NGramSegment
    from pennon.index.ngram.tokens import is_text
else:
    tokens_to_look_up = deferred("pennon.index.ngram.lookups", "tokens_to_look_up")
    NGramSegment = deferred("pennon.index.ngram.segment", "NGramSegment")
    is_text = deferred("pennon.index.ngram.tokens", "is_text")


@dataclass(frozen=True)
class NGramKind(KindDefaults):
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType("pennon.index.ngram.options", NGRAM="NGram")
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
