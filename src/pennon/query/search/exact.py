"""Distances to the vectors a table holds: of every row of a scan, or of candidates that an index estimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.row_set import RowSet
from pennon.format.rows import ADDRESS
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.threads import one_thread
from pennon.index.vector.bits import paired_distances
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.base import FEW_QUERIES
from pennon.index.vector.quantizers.flat import in_pieces
from pennon.index.vector.search.partition_search import search_partitions
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Positions, Vectors, VectorType, row_chunks, to_rows
from pennon.query.scan.execute import TAKE_LIMIT, filter_errors
from pennon.query.scan.request import is_plain
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.prefilter import ScanPart

# Vectors of a batch of a scan; pylance reads some batches ahead.
BATCH_BYTES = 8 << 20
# Rows of a batch that one core compares with many queries.
PIECE_ROWS = 1 << 12


@dataclass(frozen=True)
class ExactSearch:
    """The vectors of a column, and how they are measured."""

    snapshot: Snapshot
    column: Column
    metric: Metric
    threads: int

    def nearest(self, parts: Sequence[ScanPart], queries: Vectors, k: int) -> tuple[Neighbors, int]:
        """The k nearest rows of some scans, and how many were measured. Rows no index would hold are left out."""
        best, measured = Neighbors.none(len(queries)), 0
        for vectors, addresses in self.batches(parts):
            measured += len(addresses)
            distances, positions = self._nearest(queries, vectors, min(k, len(addresses)))
            best = Neighbors.merged([best, Neighbors(distances, addresses[positions])], k)
        return best, measured

    def batches(self, parts: Sequence[ScanPart]) -> Iterator[tuple[Vectors, Addresses]]:
        """The vectors of some scans that have distances, and their addresses."""
        for part in parts:
            known = part.kept.get() if part.kept is not None else None
            if known is not None:
                yield known
            elif part.kept is not None:
                read = list(self._valid(part))
                part.kept.put(read)
                yield from read
            else:
                yield from self._valid(part)

    def _valid(self, part: ScanPart) -> Iterator[tuple[Vectors, Addresses]]:
        for vectors, addresses in self.read(part):
            valid = self.metric.indexable(vectors)
            if not valid.all():
                vectors, addresses = vectors[valid], addresses[valid]
            if len(addresses):
                yield vectors, addresses

    def remeasured(self, queries: Vectors, found: Neighbors, k: int) -> Neighbors:
        """The k nearest of candidates, by their vectors in the table instead of what an index made of those."""
        candidates = RowSet.of_addresses(sorted_unique(found.addresses[found.found]))
        read = list(self.read(ScanPart(BitMap(), candidates)))
        addresses = np.concatenate([np.empty(0, dtype=np.uint64), *(where for _, where in read)])
        if not len(addresses):
            return Neighbors.none(len(queries))
        vectors = np.concatenate([vectors for vectors, _ in read]) if len(read) > 1 else read[0][0]
        # A scan need not come in the order of addresses.
        order = np.argsort(addresses, kind="stable")
        which = order[np.minimum(np.searchsorted(addresses, found.addresses, sorter=order), len(addresses) - 1)]
        distances = self._measure(queries, vectors, which)
        # pylance's indices may hold a vector with a NULL item, which no scan measures either.
        distances[addresses[which] != found.addresses] = np.inf
        return Neighbors.nearest(distances, found.addresses, k)

    def read(self, part: ScanPart) -> Iterator[tuple[Vectors, Addresses]]:
        """Whole vectors and the addresses of their rows, batch by batch; NULLs are left out."""
        snapshot, path, type_ = self.snapshot, self.column.path, self.column.type
        found = part.found
        if found is not None and len(found) <= TAKE_LIMIT and part.filter is None and is_plain((path,)):
            addresses = found.addresses()
            if len(addresses):
                yield _whole(snapshot.take(addresses, [path]).column(0).combine_chunks(), addresses)
            return
        rows = max(64, min(1 << 17, BATCH_BYTES // VectorType.of(type_).nbytes))
        scanner = snapshot.scanner(
            part.rows, columns=[path], batch_size=rows, filter=part.filter, with_row_address=True
        )
        with filter_errors(part.filter):
            for batch in scanner.to_batches():
                yield _whole(batch.column(0), batch.column(ADDRESS).to_numpy())

    def _nearest(self, queries: Vectors, vectors: Vectors, k: int) -> tuple[Floats, Positions]:
        if len(queries) <= FEW_QUERIES:
            # Other threads would wait for the next product busily, for longer than this one takes.
            with one_thread():
                return smallest(self.metric.distances(queries, vectors), k)
        # Products find the nearest, which are then measured as few queries would be. The rows are dealt out to the
        # cores like partitions of an index.
        quantizer, pieces = in_pieces(self.metric, vectors, PIECE_ROWS)
        probes = np.tile(np.arange(len(pieces)), (len(queries), 1))
        found = search_partitions(quantizer, pieces, quantizer.prepare(queries), probes, k, threads=self.threads)
        positions = np.where(found.positions < 0, 0, found.partitions * PIECE_ROWS + found.positions)
        distances = self._measure(queries, vectors, positions)
        distances[found.positions < 0] = np.inf
        return distances, positions

    def _measure(self, queries: Vectors, vectors: Vectors, which: Positions) -> Floats:
        """The distances of each query to the vectors at its own positions."""
        if self.metric is Metric.HAMMING:
            return paired_distances(queries, vectors, which)
        wide = np.result_type(vectors, np.float32)
        found = np.empty(which.shape, dtype=np.float32)
        for rows in row_chunks(len(queries), which.shape[1] * vectors.shape[1]):
            chosen, asked = vectors[which[rows]].astype(wide, copy=False), queries[rows].astype(wide, copy=False)
            if self.metric is Metric.L2:
                chosen -= asked[:, None]
                found[rows] = np.einsum("qkd,qkd->qk", chosen, chosen)
                continue
            products = np.einsum("qkd,qd->qk", chosen, asked)
            if self.metric is Metric.COSINE:
                products /= np.linalg.norm(chosen, axis=2) * np.linalg.norm(asked, axis=1)[:, None]
            found[rows] = 1 - products
        return found


def _whole(values: pa.Array, addresses: Addresses) -> tuple[Vectors, Addresses]:
    vectors, rows = to_rows(values)
    # Rows of several vectors may have as many as there are rows, some of them none and some two.
    alone = len(rows) == len(addresses) and not pa.types.is_list(values.type)
    return vectors, addresses if alone else addresses[rows]
