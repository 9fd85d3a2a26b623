"""Search one R-tree segment: from the root down to the leaves whose boxes meet that of a filter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition, MeetsBox
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Estimate
from pennon.index.rtree.description import describe_tree
from pennon.index.rtree.files import TreeFile
from pennon.index.rtree.geometries import Boxes, Leaves
from pennon.index.rtree.levels import page_boxes

# Pages fetched by one read when neighbors are needed: 1 Mi boxes at the default page size.
READ_PAGES = 256
# NULLs decoded at once.
LISTED = 1 << 20

Numbers = npt.NDArray[np.int64]


class RTreeSegment:
    """An opened segment. Pages are in the shared cache."""

    capacity = None  # empty geometries have no entry

    def __init__(
        self, store: Store, segment: IndexSegment, cache: ByteCache, reuse: FragmentReuse | None = None
    ) -> None:
        self._store, self._segment, self._cache, self._reuse = store, segment, cache, reuse
        self._key = (store.location.uri, segment.uuid)
        self._last: tuple[Condition, Numbers, Boxes] | None = None

    def search(self, condition: Condition) -> RowSet:
        if isinstance(condition, ColumnRanges):
            return self._remapped_nulls()
        box = _box(condition)
        found = [leaves.ids[_meets(leaves.boxes, box)] for leaves in self._pages(0, *self._leaf_pages(condition))]
        ids = np.concatenate(found) if found else np.empty(0, dtype=np.uint64)
        if self._reuse is not None:
            ids, alive = self._reuse.remap(ids)
            ids = ids[alive]
        return RowSet.of_addresses(sorted_unique(ids))

    def estimate(self, condition: Condition) -> Estimate:
        """Computed from the levels above the leaves, as if the boxes of a page were evenly distributed in it."""
        if isinstance(condition, ColumnRanges):
            return Estimate(1, len(self._nulls))
        pages, boxes = self._leaf_pages(condition)
        rows = self._file.page_size * _shares(boxes, _box(condition)).sum()
        return Estimate(len(pages), min(int(np.ceil(rows)), self._file.items))

    def stored_ids(self) -> Iterator[Addresses]:
        for _, leaves in self._file.leaves(0, self._file.leaf_pages):
            yield leaves.ids
        for piece in self._nulls.pieces(LISTED):
            yield piece.addresses()

    def has_old_nulls(self) -> bool:
        """Whether a row is recorded as NULL and has a box: pylance's optimize keeps the NULLs of fragments whose values
        were changed in place next to the new boxes. Reads the whole tree, if there are NULLs."""
        nulls = self._remapped_nulls()
        if not nulls.by_fragment:
            return False
        for _, leaves in self._file.leaves(0, self._file.leaf_pages):
            ids = leaves.ids
            if self._reuse is not None:
                ids, alive = self._reuse.remap(ids)
                ids = ids[alive]
            if len(RowSet.of_addresses(sorted_unique(ids)) & nulls):
                return True
        return False

    def describe(self) -> Description:
        return describe_tree(self._file, len(self._nulls))

    def warm(self) -> Iterator[None]:
        _ = self._nulls
        for _ in self._pages(0, *self._descend(np.array([-np.inf, -np.inf, np.inf, np.inf]))):
            yield

    def _remapped_nulls(self) -> RowSet:
        if self._reuse is None:
            return self._nulls
        found = RowSet.none()
        for piece in self._nulls.pieces(LISTED):
            addresses, alive = self._reuse.remap(piece.addresses())
            found = found | RowSet.of_addresses(sorted_unique(addresses[alive]))
        return found

    def _leaf_pages(self, condition: Condition) -> tuple[Numbers, Boxes]:
        """The pages of leaves whose boxes meet that of a condition, and their boxes."""
        # A query estimates and then searches the same condition.
        last = self._last
        if last is None or last[0] is not condition:
            self._last = last = (condition, *self._descend(_box(condition)))
        return last[1:]

    def _descend(self, box: Boxes) -> tuple[Numbers, Boxes]:
        levels = self._file.levels
        # The box around the root is not recorded; a page is compared with the box that led to it.
        pages, around = np.zeros(min(1, len(levels)), dtype=np.int64), np.empty((0, 4))
        for level in range(len(levels) - 1, 0, -1):
            numbers: list[Numbers] = []
            boxes: list[Boxes] = []
            for page, found in zip(pages.tolist(), self._pages(level, pages, around), strict=True):
                hits = np.flatnonzero(_meets(found.boxes, box))
                numbers.append(hits + page * self._file.page_size)
                boxes.append(found.boxes[hits])
            pages = np.concatenate(numbers) if numbers else np.empty(0, dtype=np.int64)
            around = np.concatenate(boxes) if boxes else np.empty((0, 4))
        if len(levels) == 1:
            [root] = self._pages(0, pages, around)
            around = page_boxes(root.boxes, self._file.page_size)
            kept = _meets(around, box)
            pages, around = pages[kept], around[kept]
        return pages, around

    def _pages(self, level: int, numbers: Numbers, around: Boxes) -> Iterator[Leaves]:
        """Pages of a level by their ascending numbers. They are checked against the boxes around them, if given, when
        they are read."""
        found = self._cache.get_all([(*self._key, level, number) for number in numbers.tolist()])
        place = 0
        while place < len(numbers):
            known = found[place]
            if known is not None:
                yield known
                place += 1
                continue
            stop = place + 1
            while stop < len(numbers) and stop - place < READ_PAGES:
                if found[stop] is not None or numbers[stop] != numbers[stop - 1] + 1:
                    break
                stop += 1
            yield from self._load(level, int(numbers[place]), stop - place, around[place:stop])
            place = stop

    def _load(self, level: int, start: int, count: int, around: Boxes) -> Iterator[Leaves]:
        file, size = self._file, self._file.page_size
        read = file.read_pages(level, start, start + count)
        if len(around):
            file.check_parents(page_boxes(read.boxes, size), around)
        for at in range(count):
            rows = slice(at * size, (at + 1) * size)
            page = Leaves(read.boxes[rows].copy(), read.ids[rows].copy())
            self._cache.put((*self._key, level, start + at), page, page.boxes.nbytes + page.ids.nbytes + 256)
            yield page

    @cached_property
    def _nulls(self) -> RowSet:
        def load() -> tuple[RowSet, int]:
            rows = self._file.read_nulls()
            return rows, rows.nbytes + 256

        return self._cache.get_or_load((*self._key, "nulls"), load)

    @cached_property
    def _file(self) -> TreeFile:
        return TreeFile(self._store, self._segment)


def _box(condition: Condition) -> Boxes:
    if not isinstance(condition, MeetsBox):
        raise TypeError(f"an R-tree does not answer {condition}")
    return np.array([condition.xmin, condition.ymin, condition.xmax, condition.ymax])


def _meets(boxes: Boxes, box: Boxes) -> npt.NDArray[np.bool_]:
    """Whether boxes have a point in common with one, borders included."""
    return (boxes[:, 0] <= box[2]) & (boxes[:, 2] >= box[0]) & (boxes[:, 1] <= box[3]) & (boxes[:, 3] >= box[1])


def _shares(boxes: Boxes, box: Boxes) -> npt.NDArray[np.float64]:
    """The share of each box that is inside another, which it meets."""
    with np.errstate(all="ignore"):
        inside = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
        shares = inside / (boxes[:, 2:] - boxes[:, :2])
    # A box without an extent, or an infinite one.
    return np.where(np.isfinite(shares), shares, 1.0).prod(axis=1)
