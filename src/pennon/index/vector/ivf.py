"""The clustering: centroids, the partition of a vector, the partitions that a query should probe.

Vectors and queries passed here are prepared by the metric. Distances to centroids are float32 matrix products; for l2
both sides are first shifted to the mean of the centroids, so that a common offset of the data costs no precision. Under
hamming the bits are the points (`Metric.points`), and distances are whole numbers, which float32 holds exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from threading import Lock
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.assignment.all_centroids import AllCentroids
from pennon.index.vector.assignment.many_centroids import MANY_CENTROIDS, ManyCentroids
from pennon.index.vector.assignment.neighborhood import BLOCK_ROWS
from pennon.index.vector.files.tensor import from_tensor, to_tensor
from pennon.index.vector.kmeans.hierarchical import UNGROUPED_CENTROIDS, train_many
from pennon.index.vector.kmeans.training import train_kmeans
from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors

# With fewer vectors, groups of centroids cost more than they save.
GROUPED_ROWS = 384
# Items of vectors that are made float32 at once: 16 MiB.
CONVERTED_ITEMS = 1 << 22

PartitionIds = npt.NDArray[np.integer[Any]]

# By the fingerprints of models.
_MANY: WeakValueDictionary[tuple[Metric, bytes], ManyCentroids] = WeakValueDictionary()
_COMPUTING = Lock()


class Model:
    """A trained model, which is sent to executors. Only the fields of the dataclass are pickled: cached properties may
    be faiss objects."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, eq=False)
class Ivf(Model):
    """Centroids in the column's type, [num_partitions, dim]: vectors are assigned by the stored values."""

    metric: Metric
    centroids: Vectors
    loss: float | None = None  # sum of the indexed vectors' distances to their centroids

    @property
    def num_partitions(self) -> int:
        return len(self.centroids)

    @property
    def dim(self) -> int:
        return self.centroids.shape[1]

    @property
    def element(self) -> np.dtype[Any]:
        return self.centroids.dtype

    @classmethod
    def train(cls, sample: Vectors, metric: Metric, num_partitions: int, *, max_iters: int = 50, seed: int = 0) -> Self:
        """k-means over the sample in at most `max_iters` full passes; for dot, as in pylance, over directions of length
        1."""
        spherical = not metric.by_l2
        points = metric.points(sample)
        train = train_many if num_partitions > UNGROUPED_CENTROIDS else train_kmeans
        trained = train(points, num_partitions, spherical=spherical, max_iters=max_iters, seed=seed)
        return cls(metric, metric.from_points(trained.centroids, sample.dtype))

    def assign(self, vectors: Vectors) -> tuple[npt.NDArray[np.uint32], Floats]:
        """The partition of each vector, and its distance to the centroid on the scale of `loss`. Among many partitions,
        about one vector in a thousand gets one that is only almost the nearest."""
        many = self.num_partitions >= MANY_CENTROIDS and self.metric is not Metric.HAMMING
        if many and len(vectors) >= GROUPED_ROWS:
            return self._assign_to_many(vectors)
        ids, distances = np.empty(len(vectors), dtype=np.uint32), np.empty(len(vectors), dtype=np.float32)
        step = max(1, CONVERTED_ITEMS // len(self._factors))
        for start in range(0, len(vectors), step):
            rows = slice(start, start + step)
            if vectors.dtype == np.float32:
                points, middle = vectors[rows], self._middle
            else:
                points, middle = self._seen(self.metric.points(vectors[rows])), None
            found = self._all.nearest(points, middle, work=len(vectors) * self._factors.size)
            ids[rows] = found.ids
            distances[rows] = found.scores + (found.lengths if self.metric.by_l2 else np.float32(1))
        return ids, np.maximum(distances, 0, out=distances) if self.metric.by_l2 else distances

    def _assign_to_many(self, vectors: Vectors) -> tuple[npt.NDArray[np.uint32], Floats]:
        ids, distances = np.empty(len(vectors), dtype=np.uint32), np.empty(len(vectors), dtype=np.float32)
        for start in range(0, len(vectors), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            points = self._seen(vectors[rows])
            ids[rows], found = self._many.nearest(points)
            distances[rows] = found + self._rest(points)
        return ids, np.maximum(distances, 0, out=distances) if self.metric.by_l2 else distances

    def rank(self, queries: Vectors, nprobes: int) -> tuple[Positions, Floats]:
        """Per query the nearest partitions, nearest first, and their centroids' distances."""
        scores, rest = self._scores(queries)
        probed = min(nprobes, self.num_partitions)
        ids = np.argpartition(scores, probed - 1, axis=1)[:, :probed]
        distances = np.take_along_axis(scores, ids, axis=1) + rest[:, None]
        order = np.argsort(distances, axis=1, kind="stable")
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)

    @cached_property
    def fingerprint(self) -> tuple[Metric, bytes]:
        """Equal for models that rank partitions alike."""
        content = np.ascontiguousarray(self.centroids)
        return self.metric, blake2b(content.view(np.uint8).data, person=str(content.dtype).encode()).digest()

    @cached_property
    def _finite(self) -> Mask:
        return np.asarray(np.isfinite(self.centroids).all(axis=1))

    @cached_property
    def _middle(self) -> Vectors:
        if self.metric in (Metric.HAMMING, Metric.DOT):
            return np.zeros(self._points.shape[1])
        finite = self.centroids[self._finite]
        return finite.astype(np.float64).sum(axis=0) / max(len(finite), 1)

    @cached_property
    def _points(self) -> Vectors:
        return self.metric.points(self.centroids)

    @cached_property
    def _factors(self) -> Floats:
        """Columns [-2c, |c|²], for dot [-c, 0]: their product with [x, 1] is a distance without the part that depends
        only on x.

        A centroid that is not finite belongs to an empty partition and is never the nearest.
        """
        finite = self._finite
        known = np.where(finite[:, None], self._points, self._middle)
        factors = np.empty((known.shape[1] + 1, self.num_partitions), dtype=np.float32)
        seen = self._seen(known)[:, :-1]
        np.multiply(seen.T, np.float32(-2 if self.metric.by_l2 else -1), out=factors[:-1])
        factors[-1] = np.where(finite, squared_lengths(seen) if self.metric.by_l2 else np.float32(0), np.inf)
        return factors

    @cached_property
    def _all(self) -> AllCentroids:
        return AllCentroids(self._factors)

    @cached_property
    def _many(self) -> ManyCentroids:
        """Of equal models of a process, those of a driver and of its tasks, one computes it."""
        with _COMPUTING:
            known = _MANY.get(self.fingerprint)
            if known is None:
                seen = np.where(self._finite[:, None], self._seen(self.centroids)[:, :-1], np.float32(np.nan))
                known = _MANY[self.fingerprint] = ManyCentroids.of(seen, by_l2=self.metric.by_l2)
            return known

    def _seen(self, vectors: Vectors) -> Floats:
        """[x, 1] of points, for l2 with x relative to the mean of the centroids."""
        points = np.ones((len(vectors), vectors.shape[1] + 1), dtype=np.float32)
        if not self.metric.by_l2:
            points[:, :-1] = vectors
            return points
        # float16 is widened first: subtraction in float16 would lose the digits that assignment depends on.
        wide = np.result_type(vectors, np.float32)
        np.subtract(vectors, self._middle.astype(wide), dtype=wide, out=points[:, :-1], casting="same_kind")
        return points

    def _scores(self, vectors: Vectors) -> tuple[Floats, Floats]:
        """Scores that order the centroids for each vector, and the term to add to get distances."""
        points = self._seen(self.metric.points(vectors))
        return points @ self._factors, self._rest(points)

    def _rest(self, points: Floats) -> Floats:
        """What scores lack to be distances: the part that depends on the vector alone."""
        return squared_lengths(points[:, :-1]) if self.metric.by_l2 else np.ones(len(points), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Layout:
    """The position of the rows of each partition in a file: one run after another, in the order of partition ids."""

    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lengths: npt.ArrayLike) -> Self:
        counts = np.asarray(lengths, dtype=np.int64)
        return cls(np.cumsum(counts) - counts, counts)

    @classmethod
    def empty(cls, num_partitions: int) -> Self:
        """The layout that pylance writes if there are no rows: zeros."""
        zeros = np.zeros(num_partitions, dtype=np.int64)
        return cls(zeros, zeros)

    @property
    def rows(self) -> int:
        return int(self.lengths.sum())

    def problem(self, num_partitions: int, num_rows: int) -> str | None:
        """The reason why these runs do not match a file with `num_rows` rows; None if they do."""
        if len(self.lengths) != num_partitions or len(self.offsets) != num_partitions:
            return f"runs of {len(self.offsets)} or {len(self.lengths)} partitions instead of {num_partitions}"
        if self.rows != num_rows:
            return f"{num_rows} rows, but its partitions add up to {self.rows}"
        filled = self.lengths > 0
        if not np.array_equal(self.offsets[filled], Layout.of(self.lengths).offsets[filled]):
            return "partitions that are not consecutive"
        return None


def write_ivf(layout: Layout, ivf: Ivf | None = None) -> bytes:
    """The IVF message of a file; only `index.idx` has centroids."""
    message = pb.IVF(offsets=layout.offsets.tolist(), lengths=layout.lengths.tolist())
    if ivf is not None:
        message.centroids_tensor.CopyFrom(to_tensor(ivf.centroids))
        if ivf.loss is not None:
            message.loss = ivf.loss
    return message.SerializeToString()


def read_layout(message: pb.IVF) -> Layout:
    layout = Layout.of(np.array(message.lengths, dtype=np.int64))
    # Without offsets, the runs are consecutive.
    return Layout(np.array(message.offsets, dtype=np.int64), layout.lengths) if message.offsets else layout


def read_ivf(message: pb.IVF, metric: Metric, num_partitions: int) -> Ivf:
    """Raises ValueError if the message does not have the centroids of `num_partitions` partitions."""
    if message.HasField("centroids_tensor"):
        centroids = from_tensor(message.centroids_tensor)
    else:
        centroids = np.array(message.centroids, dtype=np.float32).reshape(num_partitions, -1)
    if len(centroids) != num_partitions or centroids.shape[1] == 0:
        raise ValueError(f"centroids of shape {centroids.shape} for {num_partitions} partitions")
    return Ivf(metric, centroids, message.loss if message.HasField("loss") else None)
