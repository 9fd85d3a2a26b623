"""Search one segment of a bitmap index: the keys first, then only the maps that a condition needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.errors import UnsupportedTable
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.bitmap.description import describe_bitmaps
from pennon.index.bitmap.files import BitmapFile
from pennon.index.bitmap.row_map import FEW_MAPS, REMEDY, Maps, listed, remapped, to_row_set
from pennon.index.bounds import Bounds
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition, HasLabels
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Estimate
from pennon.index.value_order import SortedValues, order_of

Rows = npt.NDArray[np.int64]

# The number of keys whose maps are read to count their rows if the file does not record the counts.
COUNTED_KEYS = 64


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of a file in their order, and the row of each in the file."""

    values: SortedValues
    rows: Rows
    null_rows: Rows

    @classmethod
    def of(cls, keys: pa.Array) -> Keys:
        present = keys.is_valid().to_numpy(zero_copy_only=False)
        rows, values = np.flatnonzero(present), keys.drop_null()
        order = order_of(values)
        if order is not None:
            rows, values = rows[order], values.take(pa.array(order))
        return cls(SortedValues(values), rows, np.flatnonzero(~present))

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.rows.nbytes + self.null_rows.nbytes

    def within(self, condition: ColumnRanges) -> Rows:
        """The rows of the file whose keys satisfy a condition, ascending."""
        bounds = Bounds.of(condition)
        starts, stops = bounds.starts(self.values), bounds.stops(self.values)
        found = [self.rows[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True) if b > a]
        if condition.nulls:
            found.append(self.null_rows)
        return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def of_label(self, label: pa.Scalar | None) -> Rows:
        if label is None or not label.is_valid:
            return self.null_rows
        return self.rows[self.values.position(label, "left") : self.values.position(label, "right")]


class BitmapSegment:
    """An opened segment. Keys and pages of maps are in the shared cache."""

    def __init__(
        self,
        store: Store,
        segment: IndexSegment,
        key_type: pa.DataType,
        cache: ByteCache,
        reuse: FragmentReuse | None,
        rows: int,
    ) -> None:
        """`rows` is the number of live rows that the segment covers."""
        self.file = BitmapFile.of_segment(store, segment, key_type)
        self._cache, self._reuse, self._covered = cache, reuse, rows
        self._key = (store.location.uri, segment.uuid)
        self.keys: Keys = cache.get_or_load((*self._key, "keys"), self._load_keys)
        # The last condition and its rows: a search follows the estimate of the same condition.
        self._asked: tuple[Condition | None, Rows] = None, np.empty(0, dtype=np.int64)

    @property
    def capacity(self) -> int | None:
        """The number of ids, if the file records it: every row has one value, or NULL."""
        ids = self.file.pages.ids
        return None if ids is None else int(ids.sum())

    def search(self, condition: Condition) -> RowSet:
        return self._current(self._stored(self._rows(condition)))

    def estimate(self, condition: Condition) -> Estimate:
        return self._cost(self._rows(condition))

    def stored_ids(self) -> Iterator[Addresses]:
        for page in range(len(self.file.pages.stops)):
            for ids, _ in listed(self.file.read_page(page), self.file.where).chunks():
                yield ids

    def describe(self) -> Description:
        return describe_bitmaps(self.file)

    def warm(self) -> Iterator[None]:
        for page in range(len(self.file.pages.stops)):
            self._page(page)
            yield

    def _rows(self, condition: Condition) -> Rows:
        if not isinstance(condition, ColumnRanges):
            raise TypeError(f"a bitmap index answers ranges of values only, not {type(condition).__name__}")
        asked, rows = self._asked
        if asked is not condition:
            rows = self.keys.within(condition)
            self._asked = condition, rows
        return rows

    def _current(self, stored: RowSet) -> RowSet:
        """The rows remapped by the Fragment Reuse Index."""
        if self._reuse is None:
            return stored
        whole = {fragment: None for fragment, rows in stored.by_fragment.items() if rows is None}
        if any(fragment in self._reuse.old_fragments for fragment in whole):
            raise UnsupportedTable(f"{self.file.where} does not list the rows of a compacted fragment", REMEDY)
        rest = RowSet({fragment: rows for fragment, rows in stored.by_fragment.items() if rows is not None})
        return remapped(rest, self._reuse.remap) | RowSet(whole)

    def _stored(self, rows: Rows) -> RowSet:
        """The ids in the maps of some (ascending) rows of the file."""
        found = RowSet.none()
        for maps in self._maps(rows):
            found = found | to_row_set(maps, self.file.where)
        return found

    def _maps(self, rows: Rows) -> Iterator[Maps]:
        pages = self.file.pages.of_rows(rows)
        edges = _edges(pages)
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            page = int(pages[start])
            yield _chosen(self._page(page), rows[start:stop] - self.file.pages.starts[page])

    def _page(self, page: int) -> Maps:
        def load() -> tuple[Maps, int]:
            maps = self.file.read_page(page)
            return maps, len(maps.data) + maps.offsets.nbytes

        return self._cache.get_or_load((*self._key, page), load)

    def _cost(self, rows: Rows) -> Estimate:
        pages = self.file.pages
        if len(rows) == 1 and pages.ids is not None and pages.runs is not None:
            page = int(pages.of_rows(rows)[0])
            keys = int(pages.stops[page] - pages.starts[page])
            return Estimate(1, -(-int(pages.ids[page]) // keys), -(-int(pages.runs[page]) // keys))
        numbers, wanted = _counted(pages.of_rows(rows))
        if pages.ids is not None and pages.runs is not None:
            share = wanted / (pages.stops - pages.starts)[numbers]
            found, runs = (int(np.ceil((of_page[numbers] * share).sum())) for of_page in (pages.ids, pages.runs))
            return Estimate(len(numbers), found, runs)
        if len(rows) <= COUNTED_KEYS:
            counted = [_counts(to_row_set(maps, self.file.where)) for maps in self._maps(rows)]
            return Estimate(len(numbers), sum(found for found, _ in counted), sum(runs for _, runs in counted))
        return Estimate(len(numbers), self._covered * len(rows) // max(self.file.rows, 1))

    def _load_keys(self) -> tuple[Keys, int]:
        keys = Keys.of(self.file.read_keys())
        return keys, keys.nbytes


class LabelListSegment(BitmapSegment):
    """An opened segment over the elements of lists. `everything` returns the ids of all rows that it covers."""

    def __init__(
        self,
        store: Store,
        segment: IndexSegment,
        key_type: pa.DataType,
        cache: ByteCache,
        reuse: FragmentReuse | None,
        rows: int,
        everything: Callable[[], RowSet],
    ) -> None:
        super().__init__(store, segment, key_type, cache, reuse, rows)
        self._everything = everything
        self._asked_labels: tuple[HasLabels | None, list[Rows]] = None, []
        self._list_nulls: Maps = cache.get_or_load((*self._key, "list_nulls"), self._load_list_nulls)

    @property
    def capacity(self) -> None:
        """Empty lists have no entry, others may have many."""
        return None

    def search(self, condition: Condition) -> RowSet:
        if isinstance(condition, ColumnRanges) and is_null_test(condition):
            return self._null_lists() if condition.nulls else _without(self._everything(), self._null_lists())
        labels = _labels(condition)
        found = self._current(self._having(labels))
        return _without(self._everything(), found | self._null_lists()) if labels.negated else found

    def estimate(self, condition: Condition) -> Estimate:
        if isinstance(condition, ColumnRanges) and is_null_test(condition):
            found, runs = _counts(self._null_lists())
            return Estimate(1, found, runs) if condition.nulls else Estimate(1, self._covered, runs + 1)
        labels = _labels(condition)
        costs = [self._cost(rows) for rows in self._label_rows(labels)]
        pages = sum(cost.pages for cost in costs)
        if labels.negated:
            return Estimate(pages, self._covered)
        if labels.every:
            least = min(costs, key=lambda cost: cost.rows)
            return Estimate(pages, least.rows, least.runs)
        return sum(costs, Estimate(0, 0))

    def stored_ids(self) -> Iterator[Addresses]:
        yield from super().stored_ids()
        for ids, _ in listed(self._list_nulls, self.file.where).chunks():
            yield ids

    def _null_lists(self) -> RowSet:
        return self._current(to_row_set(self._list_nulls, self.file.where))

    def _load_list_nulls(self) -> tuple[Maps, int]:
        maps = self.file.read_list_nulls()
        return maps, len(maps.data)

    def _having(self, condition: HasLabels) -> RowSet:
        rows = self._label_rows(condition)
        if not condition.every:
            return self._stored(rows[0] if len(rows) == 1 else np.unique(np.concatenate(rows)))
        return reduce(RowSet.__and__, map(self._stored, rows))

    def _label_rows(self, condition: HasLabels) -> list[Rows]:
        """The rows of the file of each label."""
        asked, rows = self._asked_labels
        if asked is not condition:
            rows = [self.keys.of_label(label) for label in condition.labels]
            self._asked_labels = condition, rows
        return rows


def is_null_test(condition: ColumnRanges) -> bool:
    """Whether a condition is IS NULL or IS NOT NULL."""
    return not condition.spans if condition.nulls else condition.is_everything


def _labels(condition: Condition) -> HasLabels:
    if not isinstance(condition, HasLabels) or not condition.labels:
        raise TypeError(f"an index of labels answers conditions on labels only, not {condition}")
    return condition


def _chosen(maps: Maps, numbers: Rows) -> Maps:
    """Some of the maps, copied together unless they are neighbors."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first + 1 == len(numbers):
        return maps.slice(first, last + 1)
    if len(numbers) <= FEW_MAPS:
        return maps.pick(numbers.tolist())
    return maps.take(numbers)


def _counted(ascending: Rows) -> tuple[Rows, Rows]:
    """Different numbers, and how often each occurs."""
    edges = _edges(ascending)
    return ascending[edges[:-1]], np.diff(edges)


def _edges(ascending: Rows) -> Rows:
    """Where each of the different numbers begins, and the end."""
    if len(ascending) < 2:
        return np.arange(len(ascending) + 1)
    return np.concatenate([[0], np.flatnonzero(ascending[1:] != ascending[:-1]) + 1, [len(ascending)]])


def _counts(rows: RowSet) -> tuple[int, int]:
    """The number of listed rows, and of runs of them."""
    listed_rows = [offsets for offsets in rows.by_fragment.values() if offsets is not None]
    found = sum(map(len, listed_rows))
    return found, found - sum(offsets.intersection_cardinality(offsets.shift(1)) for offsets in listed_rows)


def _without(rows: RowSet, others: RowSet) -> RowSet:
    left: dict[int, BitMap | None] = {}
    for fragment, offsets in rows.by_fragment.items():
        gone = others.by_fragment.get(fragment, BitMap())
        if gone is not None and offsets is not None:
            left[fragment] = offsets - gone
    return RowSet(left)
