"""Builds candidates for an index on a sample of a column, in this process, and searches them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.scratch_table import write_scratch_table
from pennon.index.cache import ByteCache
from pennon.index.vector.options import IvfOptions
from pennon.index.vector.vectors import to_matrix
from pennon.jobs.create_index import create_index, plan_index
from pennon.jobs.tune.advice import K
from pennon.jobs.tune.result import TunedSetting
from pennon.jobs.tune.tune import tune
from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest, read_request
from pennon.query.search.source import find_source

QUERIES = 300
MEMORY_BYTES = 1 << 30
# Measurements that a process keeps, because `create_index` often follows `plan_index` or `advise_index`.
KEPT = 8


@dataclass(frozen=True)
class BuiltCandidate:
    """A candidate on the sample, and the fastest setting of it that reaches the recall, if it was searched."""

    options: IvfOptions
    row_bytes: float
    setting: TunedSetting | None
    searched: bool = True


_measurements: dict[tuple[str, float, str], list[BuiltCandidate]] = {}


def measured_candidates(
    engine: Engine,
    values: pa.Array,
    candidates: Sequence[IvfOptions],
    recall: float,
    given: Mapping[str, Any],
    most_row_bytes: float | None,
) -> list[BuiltCandidate]:
    """What was measured of the same vectors, else a measurement."""
    # The text of an option that is an array does not show all of it.
    is_plain = all(isinstance(value, str | int | float) for value in given.values())
    vectors = np.ascontiguousarray(to_matrix(values)[0])
    content = hashlib.blake2b(vectors.data, digest_size=32, person=str(vectors.dtype).encode())
    key = content.hexdigest(), recall, repr((vectors.shape, candidates, sorted(given.items())))
    known = _measurements.get(key) if is_plain else None
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="pennon-advice-") as scratch:
        found = _measured(engine, str(Path(scratch) / "sample.lance"), values, candidates, recall, most_row_bytes)
    if is_plain and found[0].searched:
        _measurements[key] = found
        for old in list(_measurements)[:-KEPT]:
            _measurements.pop(old, None)
    return found


def _measured(
    engine: Engine,
    path: str,
    values: pa.Array,
    candidates: Sequence[IvfOptions],
    recall: float,
    most_row_bytes: float | None,
) -> list[BuiltCandidate]:
    snapshot = write_scratch_table(path, pa.table({"vector": values}))
    for number, options in enumerate(candidates):
        smaller = replace(options, num_partitions=None, ivf_centroids=None)
        plan = plan_index(
            snapshot,
            "vector",
            smaller,
            name=_name(number),
            fragment_ids=None,
            parallelism=engine.parallelism,
            memory_bytes=MEMORY_BYTES,
            rows_per_task=None,
        )
        snapshot = create_index(engine, snapshot, smaller.index_type, plan, replace=True, whole=True)
    catalog = Catalog.read(snapshot, ByteCache(MEMORY_BYTES))
    metric = candidates[0].metric
    row_bytes: list[float] = []
    for number in range(len(candidates)):
        question = read_request(snapshot, SearchRequest("vector", K, metric=metric, index=_name(number)), (), many=True)
        [segment] = find_source(catalog, question).segments
        loaded = segment.opened.partitions(range(segment.opened.files.ivf.num_partitions))[0]
        row_bytes.append(sum(each.nbytes for each in loaded) / len(values))
    if most_row_bytes is not None and min(row_bytes) > most_row_bytes:  # no recall makes up for it
        return [
            BuiltCandidate(each, size, None, searched=False) for each, size in zip(candidates, row_bytes, strict=True)
        ]
    request = SearchRequest("vector", K, metric=metric, recall=recall)
    _, result = tune(engine, catalog, request, None, QUERIES, store=False)
    built: list[BuiltCandidate] = []
    for number, (options, size) in enumerate(zip(candidates, row_bytes, strict=True)):
        reached = [s for s in result.settings if s.index == _name(number) and s.recall_low >= recall]
        built.append(
            BuiltCandidate(options, size, min(reached, key=lambda setting: setting.milliseconds, default=None))
        )
    return built


def _name(number: int) -> str:
    return f"candidate {number}"
