"""The files of an R-tree segment.

`page_data.lance` has a row a box, level by level (`levels`), the leaves first: `bbox` (a struct of four doubles) and
`id` (uint64), that of the row in a leaf, and the number of the page around which the box is in the levels above. Its
metadata has `page_size`, `num_pages`, `num_items` (leaves) and `bbox`, the box around all of them as JSON, without
which pylance finds nothing. `nulls.lance` has one row, `nulls` (binary): the row map (`pennon.index.row_map`) of rows
without a geometry. Empty geometries are in neither file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.checksums import Digests
from pennon.index.row_map import read_row_map, write_row_map
from pennon.index.rtree.checksums import Checksums, page_digests, read_checksums, write_checksums
from pennon.index.rtree.geometries import BOUNDS, Boxes, Leaves
from pennon.index.rtree.levels import Level, levels_of, page_boxes

PAGE_FILE = "page_data.lance"
NULLS_FILE = "nulls.lance"
BOX_TYPE = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in BOUNDS])
SCHEMA = pa.schema(
    [
        pa.field("bbox", BOX_TYPE, nullable=False, metadata={"ARROW:extension:name": "geoarrow.box"}),
        pa.field("id", pa.uint64(), nullable=False),
    ]
)
NULLS_SCHEMA = pa.schema([pa.field("nulls", pa.binary(), nullable=False)])
REMEDY = "Rebuild the index"
# Boxes read at once by jobs.
READ_ROWS = 1 << 17


class TreeFile:
    """An open tree. Reads are verified by the segment's checksums, if it has them."""

    def __init__(self, store: Store, segment: IndexSegment) -> None:
        self._store, self._segment = store, segment
        self._file = LanceFile(store, f"{segment.directory}/{PAGE_FILE}", segment.file_sizes.get(PAGE_FILE))
        self.where = self._file.where
        if [(field.name, _plain(field.type)) for field in self._file.schema] != [("bbox", BOUNDS), ("id", pa.uint64())]:
            raise DamagedFile(f"{self.where} does not hold boxes and ids", REMEDY)
        items, pages, self.page_size = (self._number(key) for key in ("num_items", "num_pages", "page_size"))
        if self.page_size < 2 or items > self._file.num_rows:
            raise DamagedFile(f"the metadata of {self.where} is not that of an R-tree", REMEDY)
        self.levels: list[Level] = levels_of(items, self.page_size)
        rows, expected = sum(level.rows for level in self.levels), sum(level.pages for level in self.levels)
        if (rows, expected) != (self._file.num_rows, pages):
            raise DamagedFile(
                f"{self.where} has {self._file.num_rows} boxes in {pages} pages, but {items} rows need {rows} boxes in"
                f" {expected} pages",
                REMEDY,
            )
        self._checksums: Checksums | None = read_checksums(store, segment, pages)

    @property
    def items(self) -> int:
        return self.levels[0].rows if self.levels else 0

    @property
    def leaf_pages(self) -> int:
        return self.levels[0].pages if self.levels else 0

    def read_pages(self, level: int, start: int, stop: int) -> Leaves:
        """The boxes of the pages [start, stop) of a level, with ids of rows or of pages."""
        place = self.levels[level]
        first, last = place.rows_of(start, stop)
        table = self._file.read(first, last - first).combine_chunks()
        if not len(table):
            return Leaves.none()
        return self._checked(level, start, table.column(0).chunk(0), table.column(1).chunk(0))

    def leaves(self, start: int, stop: int) -> Iterator[tuple[int, Leaves]]:
        """The pages [start, stop) of leaves, a few at a time, each with the number of the first."""
        at_once = max(1, READ_ROWS // self.page_size)
        for page in range(start, stop, at_once):
            yield page, self.read_pages(0, page, min(stop, page + at_once))

    def read_nulls(self) -> RowSet:
        """The stored ids of the rows without a geometry."""
        file = LanceFile(
            self._store, f"{self._segment.directory}/{NULLS_FILE}", self._segment.file_sizes.get(NULLS_FILE)
        )
        if [(field.name, field.type) for field in file.schema] != [("nulls", pa.binary())] or file.num_rows != 1:
            raise DamagedFile(f"{file.where} does not hold one map of NULLs", REMEDY)
        content = file.read().column(0)[0].as_py()
        if content is None:
            raise DamagedFile(f"{file.where} does not hold one map of NULLs", REMEDY)
        if self._checksums is not None:
            self._checksums.check_nulls(content, file.where)
        rows = read_row_map(content, file.where)
        if None in rows.by_fragment.values():
            raise UnsupportedTable(f"{file.where} includes all rows of a fragment without listing them", REMEDY)
        return rows

    def check_levels(self) -> None:
        """Raises DamagedFile if a level above the leaves does not have the boxes of the level below it."""
        for number in range(2, len(self.levels)):
            below, above = self.levels[number - 1], self.levels[number]
            boxes = self.read_pages(number - 1, 0, below.pages).boxes
            self.check_parents(page_boxes(boxes, self.page_size), self.read_pages(number, 0, above.pages).boxes)

    def check_leaves(self, first: int, leaves: Leaves) -> None:
        """Raises DamagedFile if the level above the leaves does not have the boxes of the pages from `first` on."""
        if len(self.levels) < 2:
            return
        found = page_boxes(leaves.boxes, self.page_size)
        start, stop = first // self.page_size, -(-(first + len(found)) // self.page_size)
        above = self.read_pages(1, start, stop).boxes[first - start * self.page_size :]
        self.check_parents(found, above[: len(found)])

    def check_parents(self, around: Boxes, recorded: Boxes) -> None:
        """Raises DamagedFile if the boxes around pages are not those of the level above."""
        if len(around) != len(recorded) or not (around == recorded).all():
            raise DamagedFile(f"a page in {self.where} does not match the box around it", REMEDY)

    def _checked(self, level: int, start: int, boxes: pa.Array, ids: pa.Array) -> Leaves:
        fields = [_storage(boxes).field(name) for name in BOUNDS]
        if boxes.null_count or ids.null_count or any(field.null_count for field in fields):
            raise DamagedFile(f"{self.where} has boxes without bounds or ids", REMEDY)
        found = Leaves(np.stack([field.to_numpy() for field in fields], axis=1), ids.to_numpy())
        place = self.levels[level]
        if self._checksums is not None:
            lengths = place.lengths(start, start + -(-len(found) // self.page_size))
            self._checksums.check_pages(place.first_page + start, found, lengths, self.where)
        if not (found.boxes[:, :2] <= found.boxes[:, 2:]).all():
            raise DamagedFile(f"{self.where} has boxes that end before they begin", REMEDY)
        if level:
            first = self.levels[level - 1].first_page + start * self.page_size
            if not np.array_equal(found.ids, np.arange(first, first + len(found), dtype=np.uint64)):
                raise DamagedFile(f"{self.where} has pages in an unexpected order", REMEDY)
        return found

    def _number(self, key: str) -> int:
        text = self._file.metadata.get(key, "")
        if not text.isdecimal() or len(text) > 18:
            raise DamagedFile(f"the metadata of {self.where} has no valid {key}", REMEDY)
        return int(text)


def write_tree(
    store: Store,
    directory: str,
    leaves: Iterable[Leaves],
    nulls: Callable[[], RowSet],
    page_size: int,
    storage_version: str,
) -> tuple[IndexFile, ...]:
    """Write the files of a segment.

    Args:
        leaves: boxes and ids in the order of the file, piece by piece.
        nulls: returns the ids of rows without a geometry, after the last of the leaves.

    Returns:
        The files, with the one of checksums.
    """
    tree = _Tree(page_size)
    pages = write_lance_file(
        store, directory, PAGE_FILE, SCHEMA, tree.batches(leaves), storage_version, metadata=tree.metadata
    )
    content = write_row_map(nulls())
    listed = [pa.record_batch([pa.array([content], pa.binary())], schema=NULLS_SCHEMA)]
    nulls_file = write_lance_file(store, directory, NULLS_FILE, NULLS_SCHEMA, listed, storage_version)
    return pages, nulls_file, write_checksums(store, directory, content, tree.digests())


def leaf_batch(leaves: Leaves) -> pa.RecordBatch:
    """Boxes and ids in the format of files."""
    columns = [pa.array(np.ascontiguousarray(leaves.boxes[:, at])) for at in range(4)]
    return pa.record_batch([pa.StructArray.from_arrays(columns, fields=list(BOX_TYPE)), pa.array(leaves.ids)], SCHEMA)


def leaves_of_batch(batch: pa.RecordBatch) -> Leaves:
    boxes, ids = batch.columns
    return Leaves(np.stack([_storage(boxes).field(name).to_numpy() for name in BOUNDS], axis=1), ids.to_numpy())


class _Tree:
    """A tree while it is written: the levels above the leaves follow from the boxes around pages."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._digests: list[Digests] = []
        self.metadata: dict[str, str] = {}

    def batches(self, leaves: Iterable[Leaves]) -> Iterator[pa.RecordBatch]:
        around: list[Boxes] = []
        items = pages = 0
        for some in _whole_pages(leaves, self._page_size):
            yield self._page_batch(some)
            around.append(page_boxes(some.boxes, self._page_size))
            items += len(some)
        boxes = np.concatenate(around) if around else np.empty((0, 4))
        while len(boxes) > 1:
            level = Leaves(boxes, np.arange(pages, pages + len(boxes), dtype=np.uint64))
            yield self._page_batch(level)
            pages, boxes = pages + len(boxes), page_boxes(boxes, self._page_size)
        self.metadata |= {
            "page_size": str(self._page_size),
            "num_pages": str(pages + len(boxes)),
            "num_items": str(items),
            "bbox": _bounds_text(boxes),
        }

    def digests(self) -> Digests:
        return np.concatenate(self._digests) if self._digests else np.empty(0, dtype=np.uint64)

    def _page_batch(self, boxes: Leaves) -> pa.RecordBatch:
        lengths = [min(self._page_size, len(boxes) - row) for row in range(0, len(boxes), self._page_size)]
        self._digests.append(page_digests(boxes, lengths))
        return leaf_batch(boxes)


def _whole_pages(leaves: Iterable[Leaves], page_size: int) -> Iterator[Leaves]:
    """The same boxes in pieces of whole pages; only the last piece may end with a short one."""
    held: list[Leaves] = []
    rows = 0
    for some in leaves:
        held.append(some)
        rows += len(some)
        if rows >= max(page_size, READ_ROWS):
            joined, whole = Leaves.joined(held), rows // page_size * page_size
            yield joined.take(slice(whole))
            held, rows = [joined.take(slice(whole, None))], rows - whole
    if rows:
        yield Leaves.joined(held)


def _bounds_text(root: Boxes) -> str:
    """The box around all leaves. JSON has no infinity: pylance reads it as no box, and finds nothing."""
    bounds: list[Any] = [None] * 4
    if len(root):
        largest = np.finfo(np.float64).max
        bounds = np.clip(root[0], -largest, largest).tolist()
    return json.dumps(dict(zip(("minx", "miny", "maxx", "maxy"), bounds, strict=True)))


def _plain(type_: pa.DataType) -> Any:
    """The names of the bounds for a struct of four doubles, with any metadata."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_struct(type_) and all(type_.field(at).type == pa.float64() for at in range(type_.num_fields)):
        return tuple(type_.field(at).name for at in range(type_.num_fields))
    return type_


def _storage(boxes: pa.Array) -> pa.StructArray:
    """Where the extension type of boxes is registered, pylance returns it."""
    return boxes.storage if isinstance(boxes, pa.ExtensionArray) else boxes
