"""A partition in memory: its row ids, the scorer that compares its rows with queries, and its graph if it has one.

Graphs are walked if few queries probe a partition; for more queries, measuring every row is faster, and also exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import faiss
import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.threads import one_thread
from pennon.index.vector.hnsw.search import HnswSearcher
from pennon.index.vector.quantizers.base import PointQuantizer, Scorer
from pennon.index.vector.search.partition_search import POSITION_BITS, Found
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors

# A walk costs about as much as comparing this many rows one after another, and this many for each node it keeps in
# sight; where many queries are compared at once, by products, as much as CROWDED times these.
WALK_ROWS, NODE_ROWS, CROWDED = 5000, 100, 4
CROWD = 8


@dataclass(frozen=True, eq=False)
class Graph:
    """The HNSW graph of a partition, and the quantizer that turns queries into points."""

    quantizer: PointQuantizer
    centroid: Vectors
    searcher: HnswSearcher

    def worth_walking(self, queries: int, ef: int, allowed: Mask | None) -> bool:
        """Under a filter, a walk grows with the share of rows that are not allowed, and comparing shrinks with it.
        Comparing is also exact: what a filter leaves of a graph need not be connected."""
        count = len(self.searcher)
        compared = count if allowed is None else int(np.count_nonzero(allowed))
        walk = (WALK_ROWS + NODE_ROWS * ef * count / max(1, compared)) * (1 if queries <= CROWD else CROWDED)
        return compared > walk

    def nearest(self, queries: Vectors, k: int, ef: int | None, allowed: Mask | None) -> tuple[Floats, Positions]:
        points = self.quantizer.query_points(queries, self.centroid)
        return self.searcher.search(points, k, ef, allowed)


@dataclass(frozen=True, eq=False)
class SearchPartition:
    """`row_ids` are addresses remapped by the Fragment Reuse Index, or stable row ids; rows that it no longer maps are
    not `alive`."""

    row_ids: Addresses
    alive: Mask | None
    scorer: Scorer
    graph: Graph | None

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def nbytes(self) -> int:
        alive = 0 if self.alive is None else self.alive.nbytes
        graph = 0 if self.graph is None else self.graph.searcher.nbytes
        return self.row_ids.nbytes + alive + self.scorer.nbytes + graph + 512


def walk_graphs(
    graphs: Mapping[int, Graph],
    queries: Vectors,
    probes: Positions,
    k: int,
    *,
    ef: int | None,
    allowed: Mapping[int, Mask],
    threads: int,
) -> Found:
    """As `search_partitions`, along graphs."""
    places = *probes.shape, k
    distances, keys = np.full(places, np.inf, dtype=np.float32), np.full(places, -1, dtype=np.int64)

    def walk(number: int, graph: Graph) -> None:
        query, place = np.nonzero(probes == number)
        width = min(k, len(graph.searcher))
        found, nodes = graph.nearest(queries[query], width, ef, allowed.get(number))
        distances[query, place, :width] = found
        keys[query, place, :width] = np.where(nodes < 0, -1, nodes + (number << POSITION_BITS))

    with one_thread():
        if threads == 1:
            for number, graph in graphs.items():
                walk(number, graph)
        else:
            # faiss keeps its number of threads per thread.
            with ThreadPoolExecutor(threads, initializer=faiss.omp_set_num_threads, initargs=(1,)) as workers:
                list(workers.map(walk, *zip(*graphs.items(), strict=True)))
    return Found.nearest(distances.reshape(len(queries), -1), keys.reshape(len(queries), -1), k)
