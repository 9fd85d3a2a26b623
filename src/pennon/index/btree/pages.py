"""Writing page files: sorted runs in, one file of fixed-size pages out, with the statistics of every page.

A page file has the columns `values` (exactly the column's type) and `ids` (uint64); page n is rows
[n * batch_size, (n + 1) * batch_size), so that only the last page of a file may be short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexFile
from pennon.format.lance_file import write_lance_file
from pennon.format.store import Store
from pennon.index.arrays import UInt64s
from pennon.index.btree.lookup import PageStats
from pennon.index.checksums import Digester
from pennon.index.sorting import Buckets, kernels, merged_rows
from pennon.index.value_order import (
    argsort,
    byte_layout,
    exchange_type,
    fixed_keys,
    has_keys,
    is_offset_type,
    is_sorted,
    order_of,
    places,
)
from pennon.index.word_keys import values_of, word_keys

# Rows sorted at once while runs are merged: large enough for numpy, small enough to stay in the processor's caches.
MERGE_ROWS = 1 << 17
MERGE_BYTES = 128 << 20

RUN_FIELDS = ("values", "ids")

# To pylance's writer: do not look for repeated values, which takes as long as to encode them.
NOT_REPEATED = {"lance-encoding:rle-threshold": "0"}
# Values repeat if at least this share of them equals the previous one; the first runs of a file show it, of which one
# may be a single row.
REPEATED_SHARE = 0.25
FIRST_RUNS = 2


@dataclass(frozen=True)
class Run:
    """Rows in the tree's order: ids of NULLs first, then values ascending with their ids."""

    null_ids: Addresses
    values: pa.Array
    ids: Addresses

    @property
    def rows(self) -> int:
        return len(self.null_ids) + len(self.ids)

    def slice(self, start: int, stop: int) -> Run:
        nulls = len(self.null_ids)
        low, high = max(start - nulls, 0), max(stop - nulls, 0)
        return Run(self.null_ids[start : min(stop, nulls)], self.values[low:high], self.ids[low:high])

    def to_batch(self) -> pa.RecordBatch:
        nulls = len(self.null_ids)
        values = pa.concat_arrays([pa.nulls(nulls, self.values.type), self.values]) if nulls else self.values
        ids = np.concatenate([self.null_ids, self.ids]) if nulls else self.ids
        return pa.record_batch([values, pa.array(ids, pa.uint64())], names=list(RUN_FIELDS))

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> Run:
        values, ids = batch.column(0), batch.column(1).to_numpy()
        nulls = values.null_count
        return cls(ids[:nulls], values.slice(nulls), ids[nulls:])


def gather_run(chunks: Sequence[tuple[pa.Array, Addresses]], value_type: pa.DataType) -> Run:
    """Concatenate rows without sorting, with NULLs separated."""
    values = pa.concat_arrays([_expanded(v) for v, _ in chunks]) if chunks else pa.array([], exchange_type(value_type))
    ids = np.concatenate([i for _, i in chunks]) if chunks else np.empty(0, dtype=np.uint64)
    if not values.null_count:
        return Run(ids[:0], values, ids)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return Run(ids[is_null], values.drop_null(), ids[~is_null])


def sort_run(chunks: Sequence[tuple[pa.Array, Addresses]], value_type: pa.DataType) -> Run:
    """Sort rows."""
    keyed = _keyed(chunks, value_type)
    if keyed is not None:
        null_ids, buckets, type_ = keyed
        for keys, ids in buckets.sorted_rows(buckets.rows):
            return Run(null_ids, values_of(keys, type_), ids)
    run = gather_run(chunks, value_type)
    order = order_of(run.values)
    if order is None:
        return run
    return Run(run.null_ids, take(run.values, order), np.take(run.ids, order))


def sort_all(runs: Sequence[Run], value_type: pa.DataType) -> Iterator[Run]:
    """The rows of unsorted runs in order, a bounded number at a time."""
    null_ids = np.concatenate([run.null_ids for run in runs]) if runs else np.empty(0, dtype=np.uint64)
    chunks = [(run.values, run.ids) for run in runs]
    keyed = _keyed(chunks, value_type)
    if keyed is not None:
        _, buckets, type_ = keyed
        yield from _bounded(Run(null_ids, pa.array([], type_), null_ids[:0]))
        for keys, ids in buckets.sorted_rows(MERGE_ROWS):
            yield from _bounded(Run(null_ids[:0], values_of(keys, type_), ids))
        return
    run = sort_run(chunks, value_type)
    yield from _bounded(Run(null_ids, run.values, run.ids))


def sort_or_merge(runs: Sequence[Run], value_type: pa.DataType) -> Iterator[Run]:
    """The same for runs that may be sorted."""
    return merge_runs(runs) if all(is_sorted(run.values) for run in runs) else sort_all(runs, value_type)


def _keyed(
    chunks: Sequence[tuple[pa.Array, Addresses]], value_type: pa.DataType
) -> tuple[Addresses, Buckets, pa.DataType] | None:
    """The ids of NULLs, and the other rows as words for the kernels to sort; None if those are not to do it, or rows
    are sorted already."""
    found = kernels(sum(len(ids) for _, ids in chunks))
    if found is None or not has_keys(value_type):
        return None
    ids_of_nulls = [np.empty(0, dtype=np.uint64)]
    parts: list[tuple[pa.Array, Addresses]] = []
    last, ascending = np.uint64(0), True
    for values, ids in chunks:
        if values.null_count:
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            ids_of_nulls.append(ids[is_null])
            values, ids = values.drop_null(), ids[~is_null]
        first, end = word_keys(values[:1]), word_keys(values[-1:])
        if first is None or end is None:
            return None
        parts.append((values, ids))
        if ascending and len(first):
            ascending, last = bool(last <= first[0]) and is_sorted(values), end[0]
    return None if ascending else (np.concatenate(ids_of_nulls), Buckets(found[0], parts, _words), chunks[0][0].type)


def _words(values: pa.Array) -> UInt64s:
    keys = word_keys(values)
    assert keys is not None
    return keys


def _bounded(run: Run) -> Iterator[Run]:
    """Pieces small enough to be written as one batch each."""
    row_bytes = max(1, run.values.nbytes // max(1, len(run.values)))
    rows = max(1, min(MERGE_ROWS, MERGE_BYTES // row_bytes))
    for start in range(0, run.rows, rows):
        yield run.slice(start, min(start + rows, run.rows))


def take(values: pa.Array, order: npt.NDArray[np.intp]) -> pa.Array:
    if (
        pa.types.is_primitive(values.type)
        and not pa.types.is_boolean(values.type)
        and values.type.bit_width in (32, 64)
    ):
        # numpy gathers machine words about twice as fast as Arrow's take.
        word = pa.int64() if values.type.bit_width == 64 else pa.int32()
        return pa.array(np.take(values.view(word).to_numpy(), order), word).view(values.type)
    found = kernels(len(order)) if is_offset_type(values.type) and not values.null_count else None
    return values.take(pa.array(order)) if found is None else _taken_strings(found[1], values, order)


def _taken_strings(text: ModuleType, values: pa.Array, order: npt.NDArray[np.intp]) -> pa.Array:
    """Strings are copied by kernels about twice as fast as by Arrow."""
    data, offsets = byte_layout(values)
    rows = np.ascontiguousarray(order, dtype=np.int64)
    targets = np.empty(len(rows) + 1, dtype=np.int64)
    size = text.place_strings(offsets, rows, targets)
    copies = np.empty(size + text.WORD, dtype=np.uint8)
    text.copy_strings(data, offsets, rows, targets, copies)
    buffers = [None, pa.py_buffer(targets), pa.py_buffer(copies).slice(0, size)]
    return pa.Array.from_buffers(values.type, len(rows), buffers, null_count=0)


def merge_runs(runs: Sequence[Run]) -> Iterator[Run]:
    """The rows of sorted runs in order, a bounded number at a time."""
    runs = [run for run in runs if run.rows]
    if len(runs) < 2:
        for run in runs:
            yield from _bounded(run)
        return
    for run in runs:
        if len(run.null_ids):
            yield Run(run.null_ids, run.values[:0], run.ids[:0])
    kernels(sum(run.rows for run in runs))  # loads them, if this is worth it for all pieces together
    pivots, frequent = _pivots(runs)
    # A frequent value is a separate piece, from the cut before it to the one after it: there is nothing to sort.
    cuts = [
        sorted([0, *places(run.values, pivots), *places(run.values, frequent, "right"), len(run.values)])
        for run in runs
    ]
    for piece in range(len(pivots) + len(frequent) + 1):
        spans = [(run, edges[piece], edges[piece + 1]) for run, edges in zip(runs, cuts, strict=True)]
        parts = [(run.values[start:stop], run.ids[start:stop]) for run, start, stop in spans if stop > start]
        if len(parts) > 1 and not _all_equal(parts):
            yield _merged(parts, runs[0].values.type)
        else:
            for part in parts:
                yield from _bounded(Run(runs[0].null_ids[:0], *part))


def _merged(parts: Sequence[tuple[pa.Array, Addresses]], value_type: pa.DataType) -> Run:
    """Sorted parts without NULLs as one run."""
    keyed = [(word_keys(values), ids) for values, ids in parts]
    words = [(keys, ids) for keys, ids in keyed if keys is not None]
    merged = merged_rows(words) if len(words) == len(parts) else None
    if merged is None:
        return sort_run(parts, value_type)
    keys, ids = merged
    return Run(ids[:0], values_of(keys, value_type), ids)


def _pivots(runs: Sequence[Run]) -> tuple[pa.Array, pa.Array]:
    """Ascending values that cut the merged rows into pieces of about MERGE_ROWS rows, and those of them that fill more
    than one such piece."""
    rows = sum(len(run.ids) for run in runs)
    size = sum(run.values.nbytes for run in runs)
    pieces = max(-(-rows // MERGE_ROWS), -(-size // MERGE_BYTES))
    step = max(1, rows // (pieces * 64)) if pieces > 1 else rows + 1  # none for a single piece
    sample = pa.concat_arrays([take(run.values, np.arange(step - 1, len(run.values), step)) for run in runs])
    cuts = np.unique(np.arange(1, pieces) * len(sample) // pieces)
    chosen = take(sample, argsort(sample)[cuts[cuts < len(sample)]])
    firsts = np.array(places(chosen, chosen), dtype=np.int64)
    distinct, counts = np.unique(firsts, return_counts=True)
    return take(chosen, distinct), take(chosen, distinct[counts > 1])


def _all_equal(parts: Sequence[tuple[pa.Array, Addresses]]) -> bool:
    """Whether all sorted parts hold the same single value."""
    ends = pa.concat_arrays([values[at : at + 1] for values, _ in parts for at in (0, len(values) - 1)])
    order = argsort(ends)
    return places(take(ends, order), take(ends, order[-1:])) == [0]


def write_pages(
    store: Store,
    directory: str,
    file_name: str,
    partition_id: int,
    runs: Iterator[Run],
    value_type: pa.DataType,
    batch_size: int,
    storage_version: str,
) -> PageStats:
    """Write rows that arrive in order. Statistics are collected while writing; no row is held longer than its page."""
    first = list(islice(runs, FIRST_RUNS))
    encoding = None if any(map(_repeats, first)) else NOT_REPEATED
    schema = pa.schema(
        [
            pa.field("values", value_type, metadata=encoding),
            pa.field("ids", pa.uint64(), nullable=False, metadata=NOT_REPEATED),
        ]
    )
    stats = _StatsCollector(value_type, batch_size)

    def batches() -> Iterator[pa.RecordBatch]:
        for run in chain(first, runs):
            batch = run.to_batch()
            values = _column_typed(batch.column(0), value_type)
            stats.add(values, len(run.null_ids), batch.column(1))
            yield pa.record_batch([values, batch.column(1)], schema=schema)

    file = write_lance_file(store, directory, file_name, schema, batches(), storage_version)
    return stats.finish(file, partition_id)


def _repeats(run: Run) -> bool:
    """Whether the values of a run repeat, as far as keys show it."""
    keys = fixed_keys(run.values)
    if keys is None or len(keys) < 2:
        return len(run.null_ids) > 1
    return bool(np.count_nonzero(keys[1:] == keys[:-1]) >= REPEATED_SHARE * len(keys))


class _StatsCollector:
    """Collects first and last value, null count and digest of every page from a stream cut into arbitrary pieces."""

    def __init__(self, value_type: pa.DataType, batch_size: int) -> None:
        self._type, self._batch_size = value_type, batch_size
        self._rows = self._nulls = 0
        self._mins: list[pa.Array] = []
        self._maxs: list[pa.Array] = []
        self._digester = Digester.of_pages(batch_size)
        self._last: pa.Array | None = None  # the newest value, the maximum of a page that ends without another

    def add(self, values: pa.Array, nulls: int, ids: pa.Array) -> None:
        self._digester.add([values, ids])
        size = self._batch_size
        start, stop = self._rows, self._rows + len(values)
        firsts = np.arange(-(-start // size) * size, stop, size) - start
        lasts = np.arange(-(-(start + 1) // size) * size - 1, stop, size) - start
        self._mins.append(_pick(values, firsts))
        self._maxs.append(_pick(values, lasts))
        self._last = _pick(values, np.array([len(values) - 1]))
        self._rows, self._nulls = stop, self._nulls + nulls

    def finish(self, file: IndexFile, partition_id: int) -> PageStats:
        if self._rows % self._batch_size and self._last is not None:
            self._maxs.append(self._last)
        pages = -(-self._rows // self._batch_size)
        starts = np.arange(pages, dtype=np.int64) * self._batch_size
        null_counts = np.clip(self._nulls - starts, 0, self._batch_size).astype(np.uint32)
        mins, maxs = _joined(self._mins, self._type), _joined(self._maxs, self._type)
        digests = self._digester.finish()
        return PageStats(file, partition_id, self._rows, self._nulls, mins, maxs, null_counts, digests)


def _joined(pieces: list[pa.Array], value_type: pa.DataType) -> pa.Array:
    return _column_typed(pa.concat_arrays(pieces), value_type) if pieces else pa.array([], value_type)


def _pick(values: pa.Array, positions: npt.NDArray[np.int64]) -> pa.Array:
    """A copy of a few values that does not keep the rest alive."""
    return _expanded(values).take(pa.array(positions))


def _expanded(values: pa.Array) -> pa.Array:
    wanted = exchange_type(values.type)
    return values if values.type == wanted else values.cast(wanted)


def _column_typed(values: pa.Array, value_type: pa.DataType) -> pa.Array:
    return values if values.type == value_type else values.cast(value_type)
