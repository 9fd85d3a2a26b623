"""New vector segments in place of old ones: with their models, over other rows, or with the rows of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from pennon.errors import DamagedFile, PennonError, StoreUnavailable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.partition_balance import Imbalance
from pennon.jobs.kinds import Work
from pennon.jobs.shared.cleanup import scratch_directory
from pennon.jobs.shared.remap import Carrying, Source
from pennon.jobs.vector.build import build_vector
from pennon.jobs.vector.merge import merge_vector, open_files
from pennon.jobs.vector.models import Models
from pennon.jobs.vector.options import VectorOptions
from pennon.jobs.vector.plan import VectorPlan, partition_size, plan_like, plan_vector
from pennon.jobs.vector.rebalance import rebalanced_models, recode


def build_like(work: Work, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool) -> IndexSegment:
    """With the models of `like`, or with models trained again."""
    plan = plan_like(
        work.snapshot,
        work.column_of(like),
        like,
        retrain=retrain,
        fragment_ids=fragments or None,  # none at all: of an empty table
        parallelism=work.engine.parallelism,
        memory_bytes=work.memory_bytes,
    )
    return _as_before(build_vector(work.engine, work.snapshot, plan), like, retrain)


def merge_segments(work: Work, sources: Sequence[Source], moves: str | None, *, rebalance: bool) -> IndexSegment:
    """With the models of the largest; `rebalance` lets partitions be split and joined."""
    like = max((source.segment for source in sources), key=lambda segment: segment.size_bytes)
    addresses = VECTOR.stores_addresses(like.index_version, work.snapshot.manifest.has_stable_row_ids)
    common: dict[str, Any] = {"parallelism": work.engine.parallelism, "memory_bytes": work.memory_bytes}
    temporary: list[IndexSegment] = []
    try:
        shared = _reconciled(work, like, sources, temporary)
        carrying = Carrying(work.snapshot.pin(), addresses, tuple(shared), moves)
        plan = plan_like(work.snapshot, work.column_of(like), like, fragment_ids=None, **common)
        with scratch_directory(work.snapshot.store) as scratch:
            if rebalance:
                plan, carrying = _rebalanced(work, like, plan, carrying, scratch, temporary)
            merged = merge_vector(work.engine, work.snapshot, plan, carrying, work.engine.parallelism)
            return _as_before(merged, like)
    finally:
        for segment in temporary:
            work.discard(segment)


def rebuild_from_data(
    work: Work,
    leaving: Sequence[IndexSegment],
    staying: Sequence[IndexSegment],
    fragments: Sequence[int],
    *,
    retrain: bool,
) -> IndexSegment:
    """Models are those of a valid segment, else of the wrong one if they can be read, else new ones by what the
    manifest records of the index."""
    for like in (*staying, *leaving) if not retrain else leaving:
        if _readable(work.snapshot, like):
            return build_like(work, like, fragments, retrain=retrain)
    return _built_as_described(work, leaving[0], fragments)


def _rebalanced(
    work: Work,
    like: IndexSegment,
    plan: VectorPlan,
    carrying: Carrying,
    scratch: str,
    temporary: list[IndexSegment],
) -> tuple[VectorPlan, Carrying]:
    """With partitions split and joined where they are too uneven; `like` has the size they were meant to have."""
    opened = [open_files(carrying.pin, source.segment) for source in carrying.sources]
    lengths = np.sum([files.layout.lengths for files in opened], axis=0)
    imbalance = Imbalance.of(lengths, partition_size(like, open_files(carrying.pin, like)))
    if not imbalance:
        return plan, carrying
    files = rebalanced_models(work.engine, work.snapshot, plan, carrying, imbalance, scratch)
    temporary.append(recode(work.engine, work.snapshot, plan, carrying, imbalance, files, scratch))
    kept = tuple(imbalance.kept(plan.num_partitions).tolist())
    sources = [replace(source, partitions=kept) for source in carrying.sources]
    recoded = Source(temporary[-1], FrozenBitMap(carrying.coverage))
    plan = replace(plan, models=files, num_partitions=files.load().ivf.num_partitions)
    return plan, replace(carrying, sources=(*sources, recoded))


def _reconciled(
    work: Work, like: IndexSegment, sources: Sequence[Source], temporary: list[IndexSegment]
) -> list[Source]:
    """Sources that have the models of `like`; what others cover is coded again from the table."""
    pin = work.snapshot.pin()
    models = _models(open_files(pin, like))
    kept: list[Source] = []
    again = BitMap()
    for source in sources:
        alike = source.segment.index_version == like.index_version
        if alike and _models(open_files(pin, source.segment)).same_as(models):
            kept.append(source)
        else:
            again |= source.coverage
    if again:
        temporary.append(build_like(work, like, list(again), retrain=False))
        kept.append(Source(temporary[0], FrozenBitMap(again)))
    return kept


def _built_as_described(work: Work, segment: IndexSegment, fragments: Sequence[int]) -> IndexSegment:
    described = VectorDetails.from_bytes(segment.details)
    if described is None:
        raise DamagedFile(
            f"no file of index {segment.name!r} of {work.snapshot.uri} tells its models, nor does the manifest",
            "Create the index anew",
        )
    options = VectorOptions(
        metric=described.metric.value,
        target_partition_size=described.target_partition_size,
        num_sub_vectors=described.num_sub_vectors,
        num_bits=described.num_bits,
    )
    if described.hnsw is not None:
        graph = described.hnsw
        options = replace(options, m=graph.m, ef_construction=graph.ef_construction, max_level=graph.max_level)
    plan = plan_vector(
        work.snapshot,
        work.column_of(segment).path,
        described.kind.name,
        options,
        name=segment.name,
        fragment_ids=fragments or None,
        parallelism=work.engine.parallelism,
        memory_bytes=work.memory_bytes,
    )
    return build_vector(work.engine, work.snapshot, plan)


def _readable(snapshot: Snapshot, segment: IndexSegment) -> bool:
    try:
        VectorFiles(snapshot.store, segment.directory, segment.file_sizes)
    except StoreUnavailable:
        raise
    except PennonError:
        return False
    return True


def _models(files: VectorFiles) -> Models:
    return Models(files.ivf, files.quantizer)


def _as_before(segment: IndexSegment, like: IndexSegment, retrained: bool = False) -> IndexSegment:
    """Older layouts stay what they are as long as their models are used."""
    if retrained:
        return segment
    return replace(segment, index_version=like.index_version, details=like.details or segment.details)
