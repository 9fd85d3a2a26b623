"""Train a vector index: sample on executors -> centroids -> quantizer. The models are then shared by all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pennon.engine import Engine
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.quantizers.parameters import TRAINING_ROWS, Sample
from pennon.index.vector.vectors import Vectors
from pennon.jobs.vector.kmeans import train_on_spark
from pennon.jobs.vector.models import TrainedModels
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.sample import SampleFile, draw_sample, read_sample


def train(engine: Engine, snapshot: Snapshot, plan: VectorPlan, scratch: str) -> tuple[TrainedModels, Vectors]:
    """The models, and vectors of the sample to estimate the sizes of partitions."""
    files = draw_sample(engine, snapshot, plan, scratch)
    known = sum(file.rows for file in files)
    if plan.centroids is None and 0 < known < plan.num_partitions:
        if plan.partitions_requested:
            raise InvalidArgument(
                f"{plan.num_partitions:,} partitions cannot be trained on the {known:,} vectors sampled from"
                f" {plan.column!r} of {snapshot.uri}",
                "Use fewer partitions, or a higher sample_rate",
            )
        plan = replace(plan, num_partitions=known)
    ivf = Ivf(plan.metric, _centroids(engine, snapshot.store, plan, files, scratch))
    needed = plan.reducers > 1 or plan.shape.trains_on_vectors
    vectors = read_sample(snapshot.store, plan, files if needed else (), min(TRAINING_ROWS, plan.sample_rows))
    sample = Sample(vectors, *_bounds(files))
    with engine.stage("train quantizer", len(vectors)):
        train_quantizer = plan.kind.quantizer.from_sample
        quantizer = train_quantizer(sample, ivf, plan.shape, max_iters=plan.max_iters, seed=plan.seed)
        return TrainedModels(ivf, quantizer), vectors


def _centroids(engine: Engine, store: Store, plan: VectorPlan, files: Sequence[SampleFile], scratch: str) -> Vectors:
    if plan.centroids is not None:
        return plan.centroids
    if not any(file.rows for file in files):
        return np.zeros((1, plan.dim), dtype=plan.element)
    if not plan.trains_on_driver:
        return plan.metric.from_points(train_on_spark(engine, store, plan, files, scratch), plan.element)
    with engine.stage("train", plan.train_rows):
        sample = read_sample(store, plan, files, plan.train_rows)
        return Ivf.train(sample, plan.metric, plan.num_partitions, max_iters=plan.max_iters, seed=plan.seed).centroids


def _bounds(files: Sequence[SampleFile]) -> tuple[float, float]:
    known = [file for file in files if file.rows]
    return min((file.low for file in known), default=0.0), max((file.high for file in known), default=0.0)
