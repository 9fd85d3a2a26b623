"""Measures the recall of an index: a few vectors of the table are compared with a scan of all vectors."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.index.vector.several import row_distances, starts_of
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Positions, Vectors, VectorType, to_rows
from pennon.jobs.audit.targets import View
from pennon.jobs.shared.tasks import ROWS_PER_TASK, cut_slices
from pennon.jobs.vector.scan import metric_of, scan_vectors
from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest
from pennon.query.search.run import search

K = 10
REFINE = 10
# A refined search has exact distances, so a row that it misses was not among its candidates.
POOR_RECALL = 0.5
SEARCH_CACHE = 256 << 20
# Distances of equal vectors, computed in another order.
ROUNDING = 1e-4


def measure_recall(
    engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int
) -> tuple[float, int] | None:
    """The recall@10 of a refined search, and the number of queries; None if there are no vectors to query."""
    sampled, starts = _queries(snapshot, view, queries)
    if not len(starts):
        return None
    slices = cut_slices(snapshot.manifest.fragments.values(), max(1, -(-_rows(snapshot) // ROWS_PER_TASK)))
    parts = engine.map(
        "brute force", partial(_nearest, snapshot.pin(), view, sampled, starts), slices, rows=_rows(snapshot)
    )
    exact = smallest(np.concatenate(parts, axis=1), K)[0]
    request = SearchRequest.of(
        view.column, K, {"index": index, "columns": [], "metric": str(metric_of(view)), "refine_factor": REFINE}
    )
    asked = np.split(sampled, starts[1:]) if VectorType.of(snapshot.column(view.column).type).several else sampled
    found = search(Catalog.read(snapshot, ByteCache(SEARCH_CACHE)), request, asked, many=True)
    limits = np.where(np.isfinite(exact), exact, -np.inf).max(axis=1)
    which, distances = found.column("query_index").to_numpy(), found.column("_distance").to_numpy()
    hits = np.count_nonzero(distances <= limits[which] + ROUNDING * (np.abs(limits[which]) + 1e-3))
    return min(1.0, hits / np.count_nonzero(np.isfinite(exact))), len(starts)


def _queries(snapshot: Snapshot, view: View, count: int) -> tuple[Vectors, Positions]:
    """The vectors of some rows, and the first of each row."""
    values: pa.Array = snapshot.sample_column(
        snapshot.column(view.column), snapshot.manifest.fragments, count, seed=snapshot.version
    )
    vectors, rows = to_rows(values)
    kept = metric_of(view).indexable(vectors)
    vectors, rows = vectors[kept], rows[kept]
    chosen = np.unique(rows)
    chosen = chosen[np.random.default_rng(snapshot.version).permutation(len(chosen))[:count]]
    own = np.isin(rows, chosen)
    return vectors[own], starts_of(rows[own])


def _nearest(pin: Pin, view: View, queries: Vectors, starts: Positions, part: ScanSlice) -> Floats:
    """Task: per query the smallest distances in a slice."""
    best = np.full((len(starts), K), np.inf, dtype=np.float32)
    for vectors, addresses in scan_vectors(pin, view, part):
        if len(vectors):
            measured = row_distances(metric_of(view), queries, starts, vectors, starts_of(addresses))
            best = smallest(np.concatenate([best, measured], axis=1), K)[0]
    return best


def _rows(snapshot: Snapshot) -> int:
    return snapshot.manifest.rows_in(snapshot.manifest.live)
