"""Choose the width of sketches and the number of cells, by what they would cost on a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pennon.index.vector.kmeans.training import train_kmeans
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats, Positions, Vectors
from pennon.jobs.near_duplicates.cells import COMPARED_ROWS, Cells, Compared, compare
from pennon.jobs.near_duplicates.sketch import COARSE, Sketch, as_points
from pennon.jobs.vector.build import cut_by_weight

# Axes of a sketch, and cells. More cells are compared with fewer rows, but found and visited more often.
WIDTHS = (32, 64, 128)
CELLS = (16, 64, 256, 1024)
# Rows whose length is this many times that of most are left out of the sample.
MOST_OUTSIDE = 1e4
# Rows of the sample that are compared with the others.
ASKED_ROWS = 512
# Costs, in items of coarse sketches that are compared: a pair that is measured, an item that is sent to other tasks, an
# item of a score against a centroid, and the comparison of two sets of rows in addition to that of its pairs.
MEASURED_COST, SENT_COST, SCORED_COST, CALL_COST = 1 << 14, 1 << 11, 4, 4_000_000


@dataclass(frozen=True, eq=False)
class Chosen:
    """`share` of all pairs are compared; `weights` of cells are their expected work."""

    sketch: Sketch
    centroids: Floats
    of_index: bool
    share: float
    weights: Floats

    def groups(self, count: int) -> tuple[Positions, Positions]:
        """An order of the cells in which neighbors are together, and where groups of about equal work start."""
        order = _in_order(self.centroids)
        cuts = cut_by_weight(self.weights[order].astype(np.float64) + 1e-9, count)
        return order, np.unique(np.asarray(cuts[:-1], dtype=np.int64))


def choose_cells(
    metric: Metric, sample: Vectors, centroids: Vectors | None, radius: float, rows: int, tasks: int
) -> Chosen:
    """The cheapest cells: those of an index, or ones that are trained on the sample, at least one for each task."""
    sample = _without_outliers(metric, sample)
    if len(sample) < 2:
        dim = sample.shape[1]
        sketch = Sketch(metric, np.zeros(dim), np.eye(dim, min(dim, WIDTHS[0]), dtype=np.float32))
        return Chosen(sketch, np.zeros((1, sketch.width), dtype=np.float32), False, 1.0, np.ones(1, np.float32))
    asked = np.random.default_rng(0).permutation(len(sample))[:ASKED_ROWS]
    sketch = _choose_sketch(metric, sample, asked, radius, rows)
    sketches = sketch.of(sample)
    found: list[tuple[float, Chosen]] = []
    for count in (1, *CELLS) if tasks == 1 else CELLS:
        if count <= max(1, len(sample) // 8):
            trained = train_kmeans(sketches, count, max_iters=6, seed=0).centroids.astype(np.float32)
            found.append(_estimated(sketch, trained, sketches, asked, radius, rows, of_index=False))
    if centroids is not None and 1 < len(centroids) <= CELLS[-1] and _near(centroids, sample):
        mapped = sketch.of(metric.prepare(centroids))
        found.append(_estimated(sketch, mapped, sketches, asked, radius, rows, of_index=True))
    if not found:
        single = sketches.mean(axis=0, keepdims=True)
        found.append(_estimated(sketch, single, sketches, asked, radius, rows, of_index=False))
    return min(found, key=lambda each: each[0])[1]


def _near(centroids: Vectors, sample: Vectors) -> bool:
    """Whether centroids are numbers of about the size of those of the sample."""
    return bool(np.abs(centroids).max() <= MOST_OUTSIDE * np.abs(sample).max())


def _without_outliers(metric: Metric, sample: Vectors) -> Vectors:
    """Axes and cells are for most rows; a few that are far away would take all of them."""
    lengths = np.linalg.norm(as_points(metric, sample).astype(np.float64), axis=1)
    return sample[lengths <= MOST_OUTSIDE * (np.median(lengths) if len(lengths) else 0)]


def _choose_sketch(metric: Metric, sample: Vectors, asked: Positions, radius: float, rows: int) -> Sketch:
    """Wide enough that few pairs are measured that are no near-duplicates."""
    dim = sample.shape[1]
    whole = Sketch.of_sample(metric, sample, dim)
    found: list[tuple[float, Sketch]] = []
    for width in dict.fromkeys(min(dim, width) for width in WIDTHS):
        sketch = Sketch(metric, whole.mean, np.ascontiguousarray(whole.axes[:, :width]))
        compared = Compared.of(sketch.of(sample))
        cells = Cells(sketch, radius, compared.sketches[:1], np.zeros(1, dtype=np.int64))
        measured = sum(len(first) for first, _ in compare(cells, compared[asked], compared)) - len(asked)
        share = measured / (len(asked) * len(sample))
        found.append((rows / 2 * share * MEASURED_COST + width * SENT_COST, sketch))
    return min(found, key=lambda each: each[0])[1]


def _estimated(
    sketch: Sketch, centroids: Floats, sketches: Floats, asked: Positions, radius: float, rows: int, *, of_index: bool
) -> tuple[float, Chosen]:
    cells = Cells(sketch, radius, centroids, np.zeros(1, dtype=np.int64))
    home = cells.home(sketches)
    sizes = np.bincount(home, minlength=len(cells)) / len(home)
    visits = cells.visits(sketches[asked], home[asked]) & (home[asked][:, None] != np.arange(len(cells)))
    # Of the pairs of a cell among themselves there are half as many.
    share = sizes**2 + 2 * sizes * visits.mean(axis=0)
    cost = rows**2 / 2 * share.sum() * min(sketch.width, COARSE)
    cost += rows * len(cells) * sketch.width * SCORED_COST
    cost += len(cells) * (2 + rows / COMPARED_ROWS) * CALL_COST
    return float(cost), Chosen(sketch, centroids, of_index, float(min(1, share.sum())), share.astype(np.float32))


def _in_order(centroids: Floats) -> Positions:
    """Halves along the direction of the greatest variance, again and again."""
    order = np.arange(len(centroids))
    waiting = [(0, len(order))]
    while waiting:
        start, stop = waiting.pop()
        some = order[start:stop]
        if len(some) > 2:
            points = centroids[some] - centroids[some].mean(axis=0)
            axis = np.linalg.eigh(points.T @ points)[1][:, -1]
            order[start:stop] = some[np.argsort(points @ axis, kind="stable")]
            middle = (start + stop) // 2
            waiting += [(start, middle), (middle, stop)]
    return order
