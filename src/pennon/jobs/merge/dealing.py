"""Deal rows to the tasks of a merge by ranges of one key: a task reads few pages of an index, and every row of a key
goes to the same task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.format.schema import stored_values
from pennon.index.value_order import argsort, exchange_type, places
from pennon.jobs.merge.source import Staged


@dataclass(frozen=True)
class Ranges:
    """Cuts between the ranges of a key column; rows with NULL go to the first."""

    key: str
    cuts: pa.Array

    @property
    def count(self) -> int:
        return len(self.cuts) + 1

    def deal(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of every range."""
        values = stored_values(batch.column(self.key))
        if not len(self.cuts):
            yield 0, batch
            return
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if len(present) < len(values):
            absent = np.setdiff1d(np.arange(len(values)), present)
            yield 0, batch.take(pa.array(absent))
        held = values.take(pa.array(present)).cast(self.cuts.type)
        order = argsort(held)
        edges = [0, *places(held.take(pa.array(order)), self.cuts, "right"), len(held)]
        for number, (start, stop) in enumerate(pairwise(edges)):
            if stop > start:
                yield number, batch.take(pa.array(present[order[start:stop]]))


def choose_ranges(staged: Staged, on: tuple[str, ...], count: int) -> Ranges:
    """About `count` ranges with about equal numbers of rows of the source, of the key with the most values."""
    sample = staged.sample()
    key = on[0]
    if sample is None or count <= 1:
        return Ranges(key, pa.array([], pa.int64()))
    if len(on) > 1:
        key = max(on, key=lambda name: pc.count_distinct(_plain(sample.column(name))).as_py())
    values = _plain(sample.column(key)).drop_null()
    ascending = values.take(pa.array(argsort(values)))
    picks = np.unique(np.linspace(0, len(ascending), count + 1)[1:-1].astype(np.int64)) if len(ascending) else []
    # Equal cuts would be ranges without rows: a key is never cut.
    return Ranges(key, pc.unique(ascending.take(pa.array(picks, pa.int64()))) if len(ascending) else values)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    return values.cast(exchange_type(values.type))
