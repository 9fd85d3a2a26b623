"""Finds the rows of many single values in a B-tree, reading its pages in sequence.

A separate read of one page costs about as much as reading ten more pages in sequence. So pages that are needed are read
together with the few between them, in batches that fit the processor's cache. Only needed pages are checked against
their digests, and only they contribute rows. Pages are not kept: there are many, and each is used once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses
from pennon.format.lance_file import LanceFile
from pennon.index.arrays import Int64s, numbers_of
from pennon.index.bounds import Bounds
from pennon.index.btree.lookup import PageFile, PageLookup
from pennon.index.checksums import digests_of_slices
from pennon.index.conditions import ColumnRanges
from pennon.index.key_spans import PointSpans
from pennon.index.value_order import exchange_type, fixed_keys, is_sorted, same_values

# Bytes of a file that are decoded at once, and that are read though no value is on them.
BATCH_BYTES, GAP_BYTES = 512 << 10, 256 << 10
# Of a value and an id, if the size of a file is unknown.
ROW_BYTES = 16

REMEDY = "Rebuild the index"

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """Pages [start, stop) of a file that are read together, and decoded `batch_pages` at a time."""

    file: PageFile
    start: int
    stop: int
    batch_pages: int


class PointSearch:
    """The search for some values: ascending in the order of the index, each once, without NULLs."""

    def __init__(self, lookup: PageLookup, values: pa.Array) -> None:
        self._lookup, self._values, self._keys = lookup, values, fixed_keys(values)
        bounds = Bounds.of(ColumnRanges("", values.type, PointSpans(values)))
        self._starts, self._stops = lookup.pages_with_values(bounds)
        edges = np.bincount(self._starts, minlength=lookup.pages + 1).astype(np.int64)
        edges -= np.bincount(self._stops, minlength=lookup.pages + 1)
        self._needed: _Mask = np.cumsum(edges[:-1]) > 0

    def windows(self, file: PageFile, file_bytes: int | None) -> Iterator[Window]:
        """The needed pages of a file, with few others between them."""
        size = self._lookup.batch_size
        batch_pages, gap = pages_of(file_bytes, file.pages * size, size)
        pages = file.first_page + np.flatnonzero(self._needed[file.first_page : file.first_page + file.pages])
        if len(pages):
            cuts = np.flatnonzero(np.diff(pages) > gap + 1) + 1
            for run in np.split(pages, cuts):
                yield Window(file, int(run[0]), int(run[-1]) + 1, batch_pages)

    def begin(self, window: Window, opened: LanceFile) -> Iterator[pa.RecordBatch]:
        """Start to read the pages of a window."""
        start, rows = self._rows(window, opened)
        return opened.begin_batches(start, rows, window.batch_pages * self._lookup.batch_size)

    def read(self, window: Window, opened: LanceFile) -> pa.Table:
        """The pages of a window at once."""
        return opened.read(*self._rows(window, opened))

    def _rows(self, window: Window, opened: LanceFile) -> tuple[int, int]:
        size, first = self._lookup.batch_size, window.file.first_page
        start, stop = (window.start - first) * size, min((window.stop - first) * size, opened.num_rows)
        return start, stop - start

    def finish(
        self, window: Window, opened: LanceFile, begun: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[Int64s, Addresses]]:
        """Positions of values, and the stored ids of their rows.

        Raises:
            DamagedFile: a page is not as it was written.
        """
        size, page = self._lookup.batch_size, window.start
        for batch in _regrouped(begun, window.batch_pages * size):
            until = page + -(-batch.num_rows // size)
            yield self._found(batch, page, until, opened.where)
            page = until
        if page != window.stop:
            raise DamagedFile(f"{opened.where} ends at page {page} of {window.stop}", REMEDY)

    def _found(self, batch: pa.RecordBatch, start: int, stop: int, where: str) -> tuple[Int64s, Addresses]:
        values, stored = batch.column(0), batch.column(1)
        nulls = int(self._lookup.null_counts[start:stop].sum())
        present = values.slice(nulls)
        keys = fixed_keys(present) if values.null_count == nulls and not present.null_count else None
        ascending = is_sorted(present) if keys is None else bool((keys[1:] >= keys[:-1]).all())
        if stored.null_count or values.null_count != nulls or present.null_count or not ascending:
            raise DamagedFile(f"a page of {start} to {stop - 1} in {where} does not match the lookup", REMEDY)
        self._check(start, stop, values, stored, where)
        low = int(self._stops.searchsorted(start, "right"))
        high = int(self._starts.searchsorted(stop - 1, "right"))
        positions, rows = self._matches(present, keys, low, high)
        rows += nulls
        # Rows of other pages were not checked.
        chosen = self._needed[start + rows // self._lookup.batch_size]
        if not chosen.all():
            positions, rows = positions[chosen], rows[chosen]
        return positions, numbers_of(stored)[rows]

    def _check(self, start: int, stop: int, values: pa.Array, stored: pa.Array, where: str) -> None:
        """Check needed pages against the lookup; a mismatch means that their file is damaged."""
        lookup, size = self._lookup, self._lookup.batch_size
        pages = start + np.flatnonzero(self._needed[start:stop])
        firsts = (pages - start) * size
        lasts = np.minimum(firsts + size, len(values)) - 1
        recorded = lookup.digests[pages]
        if recorded.any():
            found = digests_of_slices([values, stored], zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))
            if not ((found == recorded) | (recorded == 0)).all():
                raise DamagedFile(f"a page of {start} to {stop - 1} in {where} is not as it was written", REMEDY)
        # A page without NULLs has a lower bound.
        from_value = lookup.null_counts[pages] == 0
        ends = pa.array(np.concatenate([lasts, firsts[from_value]]))
        bounds = [lookup.maxs.take(pa.array(pages)), lookup.mins.take(pa.array(pages[from_value]))]
        if not same_values(values.take(ends), pa.concat_arrays(bounds)):
            raise DamagedFile(f"a page of {start} to {stop - 1} in {where} does not match the lookup", REMEDY)

    def _matches(self, present: pa.Array, keys: npt.NDArray[Any] | None, low: int, high: int) -> tuple[Int64s, Int64s]:
        """Positions of the values [low, high) and of the rows that equal them."""
        if keys is None or self._keys is None:
            kind = exchange_type(present.type)
            wanted = self._values.slice(low, high - low).cast(kind)
            found: npt.NDArray[Any] = pc.fill_null(pc.index_in(present.cast(kind), value_set=wanted), -1).to_numpy()
            rows = np.flatnonzero(found >= 0)
            return low + found[rows].astype(np.int64), rows
        starts = keys.searchsorted(self._keys[low:high], "left")
        counts = keys.searchsorted(self._keys[low:high], "right") - starts
        positions = np.repeat(np.arange(low, high), counts)
        within = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
        return positions, np.repeat(starts, counts) + within


def pages_of(file_bytes: int | None, rows: int, page_rows: int) -> tuple[int, int]:
    """The pages of a file that are decoded at once, and the largest gap that is read."""
    width = ROW_BYTES if not file_bytes or not rows else max(1, file_bytes // rows)
    page = width * page_rows
    return max(1, BATCH_BYTES // page), GAP_BYTES // page


def _regrouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of exactly `rows` rows; the last may have fewer."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not waiting and batch.num_rows == rows:
            yield batch
            continue
        waiting.append(batch)
        while sum(some.num_rows for some in waiting) >= rows:
            whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
            yield whole.slice(0, rows)
            waiting = [whole.slice(rows)] if whole.num_rows > rows else []
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
