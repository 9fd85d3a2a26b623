"""Many queries against many partitions of RaBitQ codes, the queries of a partition sixteen at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from pennon.index.vector.quantizers.rabitq.scorer import Estimator, RabitScorer
from pennon.index.vector.vectors import Floats, Mask, Positions

# Bytes of the tables of queries in memory at once.
QUERY_BYTES = 16 << 20
# In units of the error stored with a row, 1.9 standard deviations: rows that their signs place farther than this beyond
# the k-th nearest are not measured. Of a billion rows among the nearest, a few are expected to be.
MARGIN = 3
# The columns of places that are searched one after the other, for signs alone and for more bits. The nearest rows of
# partitions that come first leave few rows of the others to be measured.
SIGN_ROUNDS = slice(0, 1), slice(1, None)
ROUNDS = slice(0, 1), slice(1, 5), slice(5, None)


def search_lists(
    estimator: Estimator,
    probed: Sequence[RabitScorer],
    queries: Floats,
    places: Positions,
    k: int,
    allowed: Mask | None,
    threads: int,
) -> tuple[Floats, Positions]:
    """As `Quantizer.search_lists`; not for the older estimator, which rotates residuals."""
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    lists = _Lists.of(estimator, probed, allowed)
    at_once = max(1, QUERY_BYTES // (estimator.dim * 32))
    parts = [slice(start, start + at_once) for start in range(0, len(queries), at_once)]
    with ThreadPoolExecutor(max(1, threads)) as pool:
        found = [lists.nearest(queries[rows], places[rows], k, pool, max(1, threads)) for rows in parts]
    values, keys = zip(*found, strict=True)
    return np.concatenate(values), np.concatenate(keys)


@dataclass(frozen=True, eq=False)
class _Lists:
    """Partitions as the kernels take them."""

    estimator: Estimator
    centroids: Floats
    addresses: Positions
    starts: Positions
    width: int
    allowed: Mask

    @classmethod
    def of(cls, estimator: Estimator, probed: Sequence[RabitScorer], allowed: Mask | None) -> Self:
        return cls(
            estimator,
            np.stack([one.centroid for one in probed]),
            np.array([one.addresses for one in probed], dtype=np.int64),
            np.cumsum([0, *(len(one) for one in probed)]),
            probed[0].codes.itemsize if estimator.extra_bits else 0,
            np.empty(0, dtype=np.bool_) if allowed is None else allowed,
        )

    def nearest(
        self, queries: Floats, places: Positions, k: int, pool: ThreadPoolExecutor, threads: int
    ) -> tuple[Floats, Positions]:
        """The nearest rows of each query, unsorted."""
        # Kernels are compiled when they are imported.
        from pennon.index.vector.quantizers.rabitq.group_kernels import (  # noqa: PLC0415
            prepare_queries,
            scan_groups,
            tables_for,
        )

        made = tables_for(len(queries), self.estimator.dim, signs_only=not self.width)
        prepare_queries(queries, not self.width, np.float32(self.estimator.middle), *made)
        lists = self.addresses, self.starts, self.width, self.allowed, self.estimator.metric.by_l2
        margin = np.float32(MARGIN if self.width else 0)

        best = np.full((len(queries), k), np.inf, dtype=np.float32), np.full((len(queries), k), -1, dtype=np.int64)
        for columns in ROUNDS if self.width else SIGN_ROUNDS:
            asking, shares = self._visits(places[:, columns], threads)
            # Only rows nearer than the k-th so far count.
            limits = np.repeat(best[0].max(axis=1, keepdims=True), k, axis=1)
            heaps = [(limits.copy(), np.full_like(best[1], -1)) for _ in shares]

            def scan(heap: tuple[Floats, Positions], visits: Positions, asking: Positions = asking) -> None:
                scan_groups(queries, *made, self.centroids, visits, asking, *lists, margin, *heap)

            list(pool.map(scan, heaps, shares))
            best = _merged([best, *heaps], k)
        return best

    def _visits(self, places: Positions, threads: int) -> tuple[Positions, list[Positions]]:
        """The queries of all lists, one list after another, and for each thread where those of each list start and end
        among them. Threads compare about as many rows each."""
        order = np.argsort(places, axis=None, kind="stable")
        ordered = places.reshape(-1)[order]
        starts = np.searchsorted(ordered, np.arange(len(self.starts)))
        work = np.cumsum(np.where(ordered < 0, 0, np.diff(self.starts)[ordered]))
        edges = np.searchsorted(work, np.linspace(0, work[-1] if len(work) else 0, threads + 1)[1:-1])
        shares = [np.clip(starts, *edge) for edge in pairwise([0, *edges.tolist(), len(order)])]
        return order // max(1, places.shape[1]), [share for share in shares if share[0] < share[-1]]


def _merged(parts: Sequence[tuple[Floats, Positions]], k: int) -> tuple[Floats, Positions]:
    values, keys = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    values = np.where(keys < 0, np.float32(np.inf), values)
    order = np.argpartition(values, k - 1, axis=1)[:, :k]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(keys, order, axis=1)
