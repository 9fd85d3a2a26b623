"""Rows of a kNN join: blocks of input rows, and output rows with lists of neighbors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pennon.index.vector.vectors import Mask, Positions
from pennon.query.search.join_search import JoinSearch
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.result_table import DISTANCE

NEIGHBORS = "_neighbors"
# Bytes of rows read at once, in addition to the limit on their number, and approximately of rows returned at once.
BLOCK_BYTES = 32 << 20
RETURNED_BYTES = 8 << 20
# The first rows show the width of the columns of neighbors.
FIRST_RETURNED = 256


def blocks(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches, of at most `most_rows` rows."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, most_rows - rows)
            batch = batch.slice(piece.num_rows)
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows == most_rows or size >= BLOCK_BYTES:
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


class Returned:
    """Adds the column of neighbors, in batches of about the same size."""

    def __init__(self, search: JoinSearch, added: pa.Schema) -> None:
        self._search, self._added = search, added
        self._step = FIRST_RETURNED

    def batches(self, rows: pa.RecordBatch, valid: Mask, found: Neighbors) -> Iterator[pa.RecordBatch]:
        """`found` is for the rows that have a valid query."""
        counts = np.zeros(len(valid), dtype=np.int64)
        counts[valid] = found.counts
        queries = np.concatenate([[0], np.cumsum(valid)]).tolist()
        start = 0
        while start < len(valid):
            stop = min(start + self._step, len(valid))
            lists = self._lists(found.of(slice(queries[start], queries[stop])), counts[start:stop])
            own = rows.slice(start, stop - start)
            schema = pa.schema([*own.schema, pa.field(NEIGHBORS, lists.type)])
            yield pa.record_batch([*own.columns, lists], schema=schema)
            each = (own.nbytes + lists.nbytes) // (stop - start) + 1
            self._step = max(1, min(4 * self._step, RETURNED_BYTES // each))
            start = stop

    def _lists(self, found: Neighbors, counts: Positions) -> pa.Array:
        fetched = self._search.rows(found)
        others = [name for name in fetched.schema.names if name != DISTANCE]
        ends = np.cumsum(counts)
        ranks = np.arange(1, len(fetched) + 1) - np.repeat(ends - counts, counts)
        columns = [pa.chunked_array([ranks]), *fetched.select([DISTANCE, *others]).columns]
        cast = [column.cast(field.type).combine_chunks() for column, field in zip(columns, self._added, strict=True)]
        structs = pa.StructArray.from_arrays(cast, fields=list(self._added))
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), structs)
