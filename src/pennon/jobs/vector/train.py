"""Train a vector index: sample on executors -> centroids -> quantizer. The models are then shared by all tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pennon.engine import Engine
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.quantizers.parameters import TRAINING_ROWS, Sample
from pennon.index.vector.vectors import Vectors
from pennon.jobs.vector.held import HeldVectors
from pennon.jobs.vector.kmeans import train_on_spark
from pennon.jobs.vector.models import TrainedModels
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.sample import Drawn, DrawnSample, draw_sample


def train(
    engine: Engine, snapshot: Snapshot, plan: VectorPlan, scratch: str, held: HeldVectors | None
) -> tuple[TrainedModels, Vectors]:
    """The models, and vectors of the sample to estimate the sizes of partitions."""
    drawn = draw_sample(engine, snapshot, plan, scratch) if held is None else held.draw(snapshot, plan)
    known = drawn.rows
    if plan.centroids is None and 0 < known < plan.num_partitions:
        if plan.partitions_requested:
            raise InvalidArgument(
                f"{plan.num_partitions:,} partitions cannot be trained on the {known:,} vectors sampled from"
                f" {plan.column!r} of {snapshot.uri}",
                "Use fewer partitions, or a higher sample_rate",
            )
        plan = replace(plan, num_partitions=known)
    ivf = Ivf(plan.metric, _centroids(engine, snapshot.store, plan, drawn, scratch))
    needed = plan.reducers > 1 or plan.shape.trains_on_vectors
    vectors = drawn.read(min(TRAINING_ROWS, plan.sample_rows) if needed else 0)
    sample = Sample(vectors, *(drawn.bounds if plan.shape.sample_rows else (0.0, 0.0)))
    with engine.stage("train quantizer", len(vectors)):
        train_quantizer = plan.kind.quantizer.from_sample
        quantizer = train_quantizer(sample, ivf, plan.shape, max_iters=plan.max_iters, seed=plan.seed)
        return TrainedModels(ivf, quantizer), vectors


def _centroids(engine: Engine, store: Store, plan: VectorPlan, drawn: Drawn, scratch: str) -> Vectors:
    if plan.centroids is not None:
        return plan.centroids
    if not drawn.rows:
        return np.zeros((1, plan.dim), dtype=plan.element)
    if isinstance(drawn, DrawnSample) and not plan.trains_on_driver:
        return plan.metric.from_points(train_on_spark(engine, store, plan, drawn.files, scratch), plan.element)
    with engine.stage("train", plan.train_rows):
        sample = drawn.read(plan.train_rows)
        return Ivf.train(sample, plan.metric, plan.num_partitions, max_iters=plan.max_iters, seed=plan.seed).centroids
