"""The two kinds of bitmap indices: BITMAP on values, LABEL_LIST on the elements of lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.deferred import deferred
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition, HasLabels
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Precision, Query
from pennon.index.options import IndexOptions, OptionsByType
from pennon.index.value_order import is_orderable

if TYPE_CHECKING:
    from pennon.index.bitmap import row_map
    from pennon.index.bitmap.files import BitmapFile
    from pennon.index.bitmap.segment import BitmapSegment, LabelListSegment, is_null_test
else:
    row_map = deferred("pennon.index.bitmap.row_map")
    BitmapSegment = deferred("pennon.index.bitmap.segment", "BitmapSegment")
    LabelListSegment = deferred("pennon.index.bitmap.segment", "LabelListSegment")
    is_null_test = deferred("pennon.index.bitmap.segment", "is_null_test")


@dataclass(frozen=True)
class BitmapKind(KindDefaults):
    """The BITMAP kind, and the common parts of both."""

    queries: frozenset[Query] = frozenset({Query.FILTER})
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType("pennon.index.bitmap.options", BITMAP="Bitmap")
    names: tuple[str, ...] = tuple(options)
    type_url: str = "/lance.table.BitmapIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.table.bitmapindexdetails", "lance.index.pb.bitmapindexdetails"})
    versions: frozenset[int] = frozenset({0})
    version: int = 0  # of new segments
    over_lists: bool = False
    column_words: str = "numbers, strings, binaries, booleans, dates or times"

    def supports(self, type_: pa.DataType) -> bool:
        return is_orderable(type_)

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        return Precision.EXACT if isinstance(condition, ColumnRanges) else None

    def key_type(self, type_: pa.DataType) -> pa.DataType:
        """The type of the keys of an index on a column of some type."""
        return type_

    def elements(self, values: pa.Array) -> pa.Array:
        """The keys of values: the values themselves, or the elements of all lists, one list after another."""
        return values

    def list_nulls(self, file: BitmapFile) -> row_map.Maps:
        """The rows whose list is NULL. Raises DamagedFile if an index of lists does not record them."""
        return row_map.Maps.of_bytes(row_map.EMPTY_MAP)

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> BitmapSegment:
        rows = snapshot.manifest.rows_in(_covered(snapshot, segment, reuse))
        return BitmapSegment(snapshot.store, segment, self.key_type(column.type), cache, reuse, rows)


@dataclass(frozen=True)
class LabelListKind(BitmapKind):
    """Version 1 records which lists are NULL; without it, answers to negations would be wrong."""

    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType(
        "pennon.index.bitmap.options", LABEL_LIST="LabelList"
    )
    names: tuple[str, ...] = tuple(options)
    type_url: str = "/lance.table.LabelListIndexDetails"
    type_names: frozenset[str] = frozenset(
        {"lance.table.labellistindexdetails", "lance.index.pb.labellistindexdetails"}
    )
    versions: frozenset[int] = frozenset({1})
    version: int = 1
    over_lists: bool = True
    column_words: str = "lists of numbers, strings, binaries, booleans, dates or times"

    def supports(self, type_: pa.DataType) -> bool:
        is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
        return is_list and is_orderable(type_.value_type)

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        if isinstance(condition, ColumnRanges):
            return Precision.EXACT if is_null_test(condition) else None
        return Precision.EXACT if isinstance(condition, HasLabels) and condition.labels else None

    def key_type(self, type_: pa.DataType) -> pa.DataType:
        return type_.value_type

    def elements(self, values: pa.Array) -> pa.Array:
        return values.flatten()

    def list_nulls(self, file: BitmapFile) -> row_map.Maps:
        return file.read_list_nulls()

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> LabelListSegment:
        coverage = _covered(snapshot, segment, reuse)
        return LabelListSegment(
            snapshot.store,
            segment,
            self.key_type(column.type),
            cache,
            reuse,
            snapshot.manifest.rows_in(coverage),
            lambda: _ids_of(snapshot, coverage),
        )


BITMAP = BitmapKind()
LABEL_LIST = LabelListKind()


def _covered(snapshot: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None) -> BitMap:
    """The live fragments that a segment covers."""
    stored = BitMap(segment.fragments)
    return (stored if reuse is None else reuse.effective(stored)) & snapshot.manifest.live


def _ids_of(snapshot: Snapshot, fragments: BitMap) -> RowSet:
    """The ids of all rows of some fragments, in the form of row maps."""
    manifest = snapshot.manifest
    if not manifest.has_stable_row_ids:
        return RowSet({fragment: BitMap(range(manifest.fragments[fragment].physical_rows)) for fragment in fragments})
    found = RowSet.none()
    for fragment in fragments:
        found = found | RowSet.of_addresses(np.sort(snapshot.row_ids(fragment)))
    return found
