"""The distances of candidates, on the vectors of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.row_set import RowSet
from pennon.format.rows import ADDRESS
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats, Positions, Vectors, row_chunks, to_matrix
from pennon.jobs.near_duplicates.sketch import Doubles, as_points


@dataclass(frozen=True, eq=False)
class Measure:
    """`most_rows` are the vectors that may be in memory at once."""

    snapshot: Snapshot
    column: Column
    metric: Metric
    distance: float
    most_rows: int

    def within(self, first: Addresses, second: Addresses) -> Iterator[tuple[Positions, Floats]]:
        """The places of the pairs that are within the distance, and their distances."""
        yield from self._within(np.argsort(first, kind="stable"), first, second)

    def _within(self, chosen: Positions, first: Addresses, second: Addresses) -> Iterator[tuple[Positions, Floats]]:
        rows = sorted_unique(np.concatenate([first[chosen], second[chosen]]))
        if len(rows) > self.most_rows and len(chosen) > 1:
            half = len(chosen) // 2
            yield from self._within(chosen[:half], first, second)
            yield from self._within(chosen[half:], first, second)
            return
        if not len(rows):
            return
        points = as_points(self.metric, self._read(rows).astype(np.float64))
        found = self._distances(points, np.searchsorted(rows, first[chosen]), np.searchsorted(rows, second[chosen]))
        near = found <= self.distance
        yield chosen[near], found[near].astype(np.float32)

    def _distances(self, points: Vectors, first: Positions, second: Positions) -> Doubles:
        """By differences: equal vectors have distance 0."""
        out = np.empty(len(first))
        for rows in row_chunks(len(first), points.shape[1]):
            difference = points[first[rows]] - points[second[rows]]
            np.einsum("ij,ij->i", difference, difference, out=out[rows])
        return out / 2 if self.metric is Metric.COSINE else out

    def _read(self, addresses: Addresses) -> Vectors:
        """The vectors of rows at ascending addresses, in that order."""
        rows = RowSet.of_addresses(addresses).by_fragment
        with self.snapshot.reading_rows():
            table = self.snapshot.scanner(rows, columns=[self.column.path], with_row_address=True).to_table()
        read = table[ADDRESS].to_numpy()
        order = np.argsort(read, kind="stable")
        if not np.array_equal(read[order], addresses):
            raise BuildFailed(f"{len(read):,} of {len(addresses):,} rows of {self.snapshot.uri} were read")
        return to_matrix(table.column(0).combine_chunks())[0][order]
