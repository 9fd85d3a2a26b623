"""The vectors of a build in this process, held in memory: the column is read once, for the sample, for the partitions
of the vectors and, if the index stores them, for its file.

Tasks of this process share them. The sample is the one that tasks on executors would draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice, drawn_rows
from pennon.format.snapshot import Snapshot
from pennon.index.threads import cores
from pennon.index.vector.vectors import Mask, Positions, Vectors, row_chunks
from pennon.jobs.vector.plan import BATCH_COPIES, TRAIN_COPIES, VectorPlan
from pennon.jobs.vector.sample import indexable_vectors, sample_tasks, spread

# Bytes read at once, before they are copied. With more, most batches are in memory that the system has to supply.
READ_BYTES = 4 << 20


@dataclass(frozen=True, eq=False)
class HeldVectors:
    """A row for every live row of the fragments, in their order."""

    vectors: Vectors  # prepared by the metric; any content where the vector is not indexable
    row_ids: Addresses  # as the index stores them
    indexable: Mask
    starts: dict[int, int]  # the first row of each fragment

    def __reduce__(self) -> NoReturn:
        """Functions that are bound to vectors cannot be pickled: tasks of this process share them."""
        raise TypeError("held vectors stay in their process")

    def rows_of(self, snapshot: Snapshot, part: ScanSlice) -> range:
        start = self.starts[part.fragments[0]] + part.offset
        return range(start, start + snapshot.slice_rows(part))

    def batches(self, snapshot: Snapshot, part: ScanSlice, rows: int) -> Iterator[tuple[int, Vectors, Addresses]]:
        """The number of rows of a batch, and its indexable vectors with their ids."""
        own = self.rows_of(snapshot, part)
        for start in range(own.start, own.stop, rows):
            some = slice(start, min(start + rows, own.stop))
            kept, vectors, ids = self.indexable[some], self.vectors[some], self.row_ids[some]
            yield len(ids), *((vectors, ids) if kept.all() else (vectors[kept], ids[kept]))

    def draw(self, snapshot: Snapshot, plan: VectorPlan) -> HeldSample:
        parts: list[Positions] = []
        for task in sample_tasks(snapshot, plan):
            own = self.rows_of(snapshot, task.part)
            picked = own.start + drawn_rows(len(own), task.rows, task.seed)
            parts.append(picked[self.indexable[picked]])
        return HeldSample(self.vectors, tuple(parts))


@dataclass(frozen=True, eq=False)
class HeldSample:
    vectors: Vectors
    parts: Sequence[Positions]

    @property
    def rows(self) -> int:
        return sum(map(len, self.parts))

    @property
    def bounds(self) -> tuple[float, float]:
        return (float(self._all.min()), float(self._all.max())) if self.rows else (0.0, 0.0)

    def read(self, rows: int) -> Vectors:
        if rows >= self.rows:
            return self._all
        shares = ((part, len(part) * rows // self.rows) for part in self.parts)
        picked = [part[place] for part, wanted in shares if wanted for place in spread(len(part), wanted)]
        return self._taken(picked)

    @cached_property
    def _all(self) -> Vectors:
        return self._taken(self.parts)

    def _taken(self, parts: Sequence[Positions]) -> Vectors:
        rows = np.concatenate([np.empty(0, dtype=np.int64), *parts])
        return take_rows(self.vectors, rows)


def take_rows(vectors: Vectors, rows: Positions) -> Vectors:
    """Rows of a matrix, copied by several threads."""
    taken = np.empty((len(rows), vectors.shape[1]), dtype=vectors.dtype)

    def take(some: slice) -> None:
        # With another mode than the default, numpy writes to the given array directly.
        np.take(vectors, rows[some], axis=0, out=taken[some], mode="clip")

    with ThreadPoolExecutor(cores()) as threads:
        list(threads.map(take, row_chunks(*taken.shape)))
    return taken


def hold_vectors(engine: Engine, snapshot: Snapshot, plan: VectorPlan) -> HeldVectors | None:
    """Read the vectors of a build; None if it does not run in this process or they do not fit its memory."""
    if engine.in_process is not engine or not fits(plan):
        return None
    fragments = [snapshot.manifest.fragments[f] for f in plan.fragments]
    ends = np.cumsum([fragment.live_rows for fragment in fragments]).tolist()
    starts = {fragment.id: end - fragment.live_rows for fragment, end in zip(fragments, ends, strict=True)}
    held = HeldVectors(
        np.empty((plan.rows, plan.dim), dtype=plan.element),
        np.empty(plan.rows, dtype=np.uint64),
        np.ones(plan.rows, dtype=np.bool_),
        starts,
    )

    def read(part: ScanSlice) -> int:
        """The number of rows that were read."""
        own, batch_rows = held.rows_of(snapshot, part), max(1, min(plan.batch_rows, READ_BYTES // plan.vector_bytes))
        at = own.start
        for values, addresses in snapshot.scan_column(snapshot.column(plan.column), part, batch_rows):
            vectors, kept = indexable_vectors(plan, values)
            some = slice(at, at + len(values))
            if len(kept) == len(values):
                held.vectors[some] = vectors
            else:
                held.indexable[some] = False
                held.indexable[at + kept] = True
                held.vectors[at + kept] = vectors
            held.row_ids[some] = ids_of(addresses, snapshot.row_ids) if plan.stable_row_ids else addresses
            at += len(values)
        return at - own.start

    read_rows = engine.map("read", read, plan.slices, rows=plan.rows)
    return held if sum(read_rows) == plan.rows else None


def fits(plan: VectorPlan) -> bool:
    """Whether all vectors fit the memory of a task, next to what training and the map tasks of all cores need."""
    if plan.vectors.several or not plan.slices or not (plan.models or plan.trains_on_driver):
        return False
    trained = plan.train_rows * plan.point_bytes * TRAIN_COPIES
    mapped = cores() * plan.batch_rows * plan.vector_bytes * BATCH_COPIES
    return plan.rows * plan.vector_bytes + max(trained, mapped) <= plan.memory_bytes
