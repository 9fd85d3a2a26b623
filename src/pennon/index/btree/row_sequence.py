"""A segment as one long sequence of rows in the tree's order, which can be cut anywhere and read in parts.

Jobs that merge segments cut all of them at the same borders; each task then reads its stretch of every segment. The
lookups suffice to find the cuts; a page with a border inside is cut by its reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import READ_BATCH, LanceFile
from pennon.format.store import Store
from pennon.index.btree.guard_rows import SENTINEL_ID
from pennon.index.btree.lookup import LOOKUP_FILE, PLAIN_PAGE_FILE, PageFile, PageLookup, read_lookup
from pennon.index.btree.pages import Run
from pennon.index.value_order import SortedValues, exchange_type, fixed_keys, has_keys, is_sorted, same_value

# Bytes read at once; strings may be long.
READ_BYTES = 32 << 20
# Larger pages are not kept for the next stretch; there may be many segments.
KEPT_ROWS = 1 << 14


@dataclass(frozen=True)
class Border:
    """A position in the order of all values: after a share of the rows with exactly this value, or of the NULLs.

    The value is an array of one, because a scalar loses bits of a NaN when it is pickled.
    """

    value: pa.Array | None
    share: float


@dataclass(frozen=True, eq=False)
class Cut:
    """A position in one segment: before a page or, with a value, inside it, before the rows with values >= this one."""

    page: int
    value: pa.Array | None = None

    @property
    def middle(self) -> float:
        """The position in pages; a cut inside a page counts as its middle."""
        return self.page if self.value is None else self.page + 0.5

    def is_at(self, other: Cut) -> bool:
        """Whether both are the same position. Arrow considers -0.0 and 0.0 equal, but they differ in this order."""
        if self.page != other.page or self.value is None or other.value is None:
            return self.page == other.page and self.value is other.value
        return same_value(self.value[0], other.value[0])


@dataclass(frozen=True)
class Stretch:
    """The rows of one segment from one cut to the next."""

    start: Cut
    stop: Cut

    @property
    def last_page(self) -> int:
        """The page after the last one that must be read."""
        return self.stop.page + (self.stop.value is not None)

    @property
    def is_empty(self) -> bool:
        return self.last_page <= self.start.page or self.start.is_at(self.stop)

    @property
    def pages(self) -> float:
        """The approximate number of pages of rows."""
        return self.stop.middle - self.start.middle

    @property
    def is_inside_page(self) -> bool:
        """Whether it is between the first and the last row of one page, so that it may have no rows."""
        return self.start.page == self.stop.page and self.start.value is not None


class Sequence:
    """The rows of one segment's files, as they are stored: nothing is remapped and nothing is dropped."""

    def __init__(self, store: Store, segment: IndexSegment, value_type: pa.DataType) -> None:
        self._store, self._segment, self._type = store, segment, value_type
        self._files: dict[str, LanceFile] = {}
        self._last_page: tuple[int, Run] | None = None
        lookup = LanceFile(store, f"{segment.directory}/{LOOKUP_FILE}", segment.file_sizes.get(LOOKUP_FILE))
        self.lookup: PageLookup = read_lookup(lookup, value_type)

    def cuts(self, borders: Iterable[Border]) -> list[Cut]:
        """The cuts at the start, at all (ascending) borders, and at the end."""
        return [Cut(0), *map(self.cut, borders), Cut(self.lookup.pages)]

    @property
    def is_ranged(self) -> bool:
        return any(file.name != PLAIN_PAGE_FILE for file in self.lookup.files)

    @property
    def row_bytes(self) -> int:
        """Bytes of a value and its address in memory, estimated from the first values of pages."""
        if self.lookup.pages == 0:
            return 16
        return self.lookup.mins.nbytes // self.lookup.pages + (8 if has_keys(self._type) else 16)

    def border_before(self, page: int) -> Border:
        """The border at the start of a page. Cutting this sequence there returns the page."""
        lookup = self.lookup
        if lookup.null_counts[page]:
            return Border(None, page / lookup.pages_with_nulls()[1])
        return self._border(lookup.mins.slice(page, 1), page)

    def border_after(self, page: int) -> Border:
        """The border after the values of a page, not at the start of the next."""
        return self._border(self.lookup.maxs.slice(page, 1), page + 1)

    def _border(self, value: pa.Array, page: int) -> Border:
        left, right = (self.lookup.first_page_at(value[0], side) for side in ("left", "right"))
        return Border(_border_value(value), (page - left) / (right - left) if page > left else 0.0)

    def cut(self, border: Border) -> Cut:
        """The position of a border. A value is cut only between pages that it fills, so its share is approximate."""
        if border.value is None:
            nulls = self.lookup.pages_with_nulls()[1]
            # The page where NULLs end holds values too.
            return Cut(min(round(border.share * nulls), max(nulls - 1, 0)))
        value = border.value[0]
        left = self.lookup.first_page_at(value, "left")
        filled = self.lookup.first_page_at(value, "right") - left
        page = left + round(border.share * filled)
        return Cut(left, border.value) if page == left and self._begins_below(left, value) else Cut(page)

    def _begins_below(self, page: int, value: pa.Scalar) -> bool:
        """Whether some rows of the page are before the value."""
        if page >= self.lookup.pages:
            return False
        if self.lookup.null_counts[page]:
            return True
        return SortedValues(self.lookup.mins.slice(page, 1)).position(value, "left") > 0

    def read(self, stretch: Stretch) -> Iterator[Run]:
        """The rows of a stretch in order, a bounded number at a time."""
        size = self.lookup.batch_size
        pages = max(1, min(READ_BATCH, READ_BYTES // self.row_bytes) // size)
        page = stretch.start.page
        previous: Run | None = None
        while page < stretch.last_page:
            file = self.lookup.file_of(page)
            until = min(page + pages, stretch.last_page, file.first_page + file.pages)
            run = self._read_page(file, page) if until == page + 1 else self._read_pages(file, page, until)
            if previous is not None:
                self._check_follows(previous, run, file)
            start = _position(run, stretch.start) if page == stretch.start.page else 0
            stop = _position(run, stretch.stop) if until > stretch.stop.page else run.rows
            if stop > start:
                yield run.slice(start, stop)
            page, previous = until, run

    def whole_file(self, stretch: Stretch) -> PageFile | None:
        """The page file of a range-partitioned tree that is exactly this stretch."""
        cuts_pages = stretch.start.value is not None or stretch.stop.value is not None
        if cuts_pages or stretch.is_empty or not self.is_ranged:
            return None
        file = self.lookup.file_of(stretch.start.page)
        is_whole = (stretch.start.page, stretch.stop.page) == (file.first_page, file.first_page + file.pages)
        return file if is_whole else None

    def rows_if_guarded(self, file: PageFile) -> int | None:
        """The number of rows of a page file without its guard row; None if it has no guard row."""
        opened = self._file(file)
        first = opened.read(0, 1).column(1)[0].as_py()
        return opened.num_rows - 1 if first == int(SENTINEL_ID) else None

    def copy_file(self, file: PageFile, target: str) -> int:
        """Copy a page file unchanged to a path of the same store, and return its size."""
        return self._store.copy(f"{self._segment.directory}/{file.name}", target)

    def _read_page(self, file: PageFile, page: int) -> Run:
        """Read a page once for many neighboring stretches in it."""
        if self._last_page is None or self._last_page[0] != page:
            run = self._read_pages(file, page, page + 1)
            if self.lookup.batch_size > KEPT_ROWS:
                return run
            self._last_page = page, run
        return self._last_page[1]

    def _read_pages(self, file: PageFile, start: int, stop: int) -> Run:
        opened, size = self._file(file), self.lookup.batch_size
        first = (start - file.first_page) * size
        last = min((stop - file.first_page) * size, opened.num_rows)
        table = opened.read(first, last - first).combine_chunks()
        values, stored_ids = table.column(0).chunk(0), table.column(1).chunk(0)
        as_written = not stored_ids.null_count and self.lookup.has_rows(start, stop, [values, stored_ids])
        if not as_written or not self._matches_lookup(values, start, stop):
            raise DamagedFile(
                f"a page of {start} to {stop - 1} in {opened.where} does not match the lookup", "Rebuild the index"
            )
        nulls, ids = values.null_count, stored_ids.to_numpy()
        return Run(ids[:nulls], values.slice(nulls).cast(exchange_type(self._type)), ids[nulls:])

    def _matches_lookup(self, values: pa.Array, start: int, stop: int) -> bool:
        """Whether the rows are sorted, and pages begin and end with the values in the lookup, which determine
        borders."""
        lookup, size = self.lookup, self.lookup.batch_size
        nulls = values.null_count
        present = values.slice(nulls)
        if present.null_count or not is_sorted(present):
            return False
        firsts = np.arange(0, len(values), size)
        null_counts = np.clip(nulls - firsts, 0, size)
        if not np.array_equal(null_counts, lookup.null_counts[start:stop]):
            return False
        # The lookup does not record the first value after NULLs.
        clear = np.flatnonzero(null_counts == 0)
        lasts = np.minimum(firsts + size, len(values)) - 1
        mins, maxs = lookup.mins.slice(start, stop - start), lookup.maxs.slice(start, stop - start)
        return _same(values.take(pa.array(firsts[clear])), mins.take(pa.array(clear))) and _same(
            values.take(pa.array(lasts)), maxs
        )

    def _check_follows(self, previous: Run, run: Run, file: PageFile) -> None:
        """Check the order of pages that are read separately."""
        valid = len(previous.values) == 0 or (
            len(run.null_ids) == 0 and is_sorted(pa.concat_arrays([previous.values[-1:], run.values[:1]]))
        )
        if not valid:
            raise DamagedFile(f"{self._file(file).where} is not in value order", "Rebuild the index")

    def _file(self, file: PageFile) -> LanceFile:
        if file.name not in self._files:
            path, size = f"{self._segment.directory}/{file.name}", self._segment.file_sizes.get(file.name)
            opened = LanceFile(self._store, path, size)
            if [field.type for field in opened.schema][:2] != [self._type, pa.uint64()]:
                raise DamagedFile(
                    f"{opened.where} does not hold (value, id) rows of type {self._type}", "Rebuild the index"
                )
            expected = -(-opened.num_rows // self.lookup.batch_size)
            if expected != file.pages:
                raise DamagedFile(f"{opened.where} has {expected} pages, its lookup records {file.pages}")
            self._files[file.name] = opened
        return self._files[file.name]


def _position(run: Run, cut: Cut) -> int:
    """The number of rows before a cut, in a run that includes the page of the cut."""
    if cut.value is None:
        return 0
    return len(run.null_ids) + SortedValues(run.values).position(cut.value[0], "left")


def _same(left: pa.Array, right: pa.Array) -> bool:
    """Whether values are equal to the bit, NaN and -0.0 included."""
    if not left.is_null().equals(right.is_null()):
        return False
    left, right = left.drop_null(), right.drop_null()
    keys, other = fixed_keys(left), fixed_keys(right)
    return np.array_equal(keys, other) if keys is not None and other is not None else left.equals(right)


def _border_value(value: pa.Array) -> pa.Array:
    """A copy, so that the lookup is neither kept alive nor pickled with it."""
    return value.take(pa.array([0])).cast(exchange_type(value.type))
