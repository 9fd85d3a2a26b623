"""The queries of a measurement and their true neighbors: rows of the table that are not their own answers, or vectors
that were given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pyroaring import BitMap

from pennon.errors import UnsupportedColumn
from pennon.format.addresses import Addresses
from pennon.format.row_set import bitmap_of
from pennon.format.rows import ADDRESS
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats, Positions, Vectors, VectorType, row_chunks, to_matrix
from pennon.query.catalog import Catalog
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.request import SearchRequest, read_request
from pennon.query.search.run import find_neighbors

# Neighbors behind the k-th that may be at the same distance, and are then as good as it.
TIED = 10
# Distances of equal vectors, computed in another order.
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class Queries:
    """`own` are the addresses of queries that are rows of the table."""

    vectors: Vectors
    own: Addresses | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def extra(self) -> int:
        """Answers that a search returns in addition to those that count."""
        return 0 if self.own is None else 1

    def of(self, which: Positions | slice) -> Queries:
        return Queries(self.vectors[which], None if self.own is None else self.own[which])

    def others(self, found: Neighbors, k: int) -> Neighbors:
        """The k nearest without the row that was asked with."""
        if self.own is None:
            return Neighbors.merged([found], k)
        distances = np.where(found.addresses == self.own[:, None], np.float32(np.inf), found.distances)
        return Neighbors.nearest(distances, found.addresses, k)


@dataclass(frozen=True, eq=False)
class Truth:
    """The nearest rows of each query by their vectors; every query has at least one."""

    queries: Queries
    nearest: Neighbors
    k: int

    @classmethod
    def of(cls, queries: Queries, found: Neighbors, k: int) -> Truth:
        """Of an exact search for `searched_k(queries, k)` neighbors."""
        nearest = queries.others(found, k + TIED)
        answered = np.flatnonzero(nearest.counts)
        return cls(queries.of(answered), nearest.of(answered), k)

    def __len__(self) -> int:
        return len(self.queries)

    def shares(self, found: Neighbors, k: int, which: slice) -> Floats:
        """The share of its k nearest rows that each of some queries found. A row at the distance of the k-th counts."""
        true, asked = self.nearest.of(which), self.queries.of(which)
        found = asked.others(found, k)
        distances = np.where(true.found, true.distances, np.inf)
        counts = np.minimum(true.counts, k)
        limits = np.take_along_axis(distances, counts[:, None] - 1, axis=1)
        counted = true.found & (distances <= limits + ROUNDING * (np.abs(limits) + ROUNDING))
        hits = np.zeros(len(counts), dtype=np.int64)
        for rows in row_chunks(len(counts), found.addresses.shape[1] * true.addresses.shape[1]):
            same = found.addresses[rows, :, None] == true.addresses[rows, None, :]
            hits[rows] = (same & counted[rows, None, :]).any(axis=2).sum(axis=1)
        return (np.minimum(hits, counts) / counts).astype(np.float32)


def searched_k(queries: Queries, k: int) -> int:
    """Neighbors that an exact search has to find."""
    return k + TIED + queries.extra


def check_one_vector(column: Column) -> None:
    """Recall is measured where a row has one vector."""
    if VectorType.of(column.type).several:
        raise UnsupportedColumn(
            f"column {column.path!r} has several vectors a row, for which recall is not measured", "Give nprobes"
        )


def find_truth(catalog: Catalog, request: SearchRequest, queries: Queries) -> Truth:
    """By an exact search in this process."""
    exact = replace(request, k=searched_k(queries, request.reach), index=None, use_index=False, columns=())
    question = read_request(catalog.snapshot, exact, queries.vectors, many=True)
    return Truth.of(queries, find_neighbors(catalog, question)[0], request.reach)


def sample_rows(snapshot: Snapshot, column: Column, metric: Metric, count: int, seed: int) -> Queries:
    """Vectors of rows that were drawn evenly, at most `count`."""
    fragments = list(snapshot.manifest.fragments.values())
    starts = np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])
    rng = np.random.default_rng(seed)
    # Some of the rows drawn may be deleted, or have no vector.
    picks = np.unique(rng.integers(0, max(1, starts[-1]), min(2 * count + 16, 2 * int(starts[-1]))))
    wanted: dict[int, BitMap | None] = {}
    for fragment, start, end in zip(fragments, starts, starts[1:], strict=False):
        low, high = np.searchsorted(picks, [start, end])
        offsets = bitmap_of((picks[low:high] - start).astype(np.uint32))
        if fragment.deletion_file is not None:
            offsets -= bitmap_of(snapshot.deleted_offsets(fragment.id))
        if offsets:
            wanted[fragment.id] = offsets
    vectors: list[Vectors] = []
    own: list[Addresses] = []
    if wanted:
        with snapshot.reading_rows():
            for batch in snapshot.scanner(wanted, columns=[column.path], with_row_address=True).to_batches():
                matrix, whole = to_matrix(batch.column(0))
                kept = np.flatnonzero(whole)[metric.indexable(matrix[whole])]
                vectors.append(matrix[kept])
                own.append(batch.column(ADDRESS).to_numpy()[kept])
    if not vectors:
        return Queries(np.empty((0, column.type.list_size), dtype=np.float32), np.empty(0, dtype=np.uint64))
    drawn = Queries(np.concatenate(vectors), np.concatenate(own))
    return drawn.of(rng.permutation(len(drawn))[:count])
