"""Choose the kind of a vector index and its parameters for a recall and a budget of memory.

Candidates are built on a sample of the column, in this process, and searched: bytes of a row and recall are measured,
not guessed. Neighbors are farther apart in a sample than in the whole table, so that codes of few bits do better there;
the size of the sample is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from pennon.engine import Engine
from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.snapshot import Snapshot
from pennon.index.options import IndexOptions, options_of
from pennon.index.registry import index_options
from pennon.index.vector.kinds import VECTOR_KINDS
from pennon.index.vector.options import VECTOR_OPTIONS, IvfOptions
from pennon.index.vector.vectors import is_vector_type, to_matrix
from pennon.jobs.create_index import plan_index
from pennon.jobs.kinds import BuildPlan
from pennon.jobs.tune.advice import IndexAdvice, IndexCandidate
from pennon.jobs.tune.candidates import MEMORY_BYTES, BuiltCandidate, measured_candidates
from pennon.jobs.vector.plan import VectorPlan
from pennon.query.search.tuning.resolve import check_recall
from pennon.query.search.tuning.truth import check_one_vector
from pennon.wording import human_bytes

DEFAULT_RECALL = 0.95
SAMPLE_ROWS, SAMPLE_BYTES, LEAST_ROWS = 20_000, 64 << 20, 2_000
# Dimensions of a sub-vector of PQ, and bits of RQ, where the kind is open and where it is given.
SUB_DIMENSIONS, MORE_SUB_DIMENSIONS = (4, 8), (2, 4, 8, 16)
BITS, MORE_BITS = (1, 5), (1, 2, 4, 7)
OPEN_KINDS = ("IVF_FLAT", "IVF_HNSW_SQ", "IVF_SQ", "IVF_RQ", "IVF_PQ")
# Times within this factor are equal, and the smaller index is taken.
EQUAL_TIMES = 1.2


def advise_index(
    engine: Engine,
    snapshot: Snapshot,
    column: str,
    *,
    recall: float | None,
    memory_bytes: int | None,
    kind: str | None,
    options: Mapping[str, Any],
) -> IndexAdvice:
    """Build candidates on a sample and measure them.

    Raises:
        InvalidArgument: no candidate takes the options, or none fits the memory.
    """
    recall = DEFAULT_RECALL if recall is None else recall
    check_recall(recall)
    described = snapshot.column(column)
    if not is_vector_type(described.type):
        raise UnsupportedColumn(
            f"column {column!r} of {snapshot.uri} has type {described.type}", "Choose a column of vectors"
        )
    check_one_vector(described)
    rows = snapshot.manifest.rows_in(snapshot.manifest.live)
    candidates = _candidates(kind, options, described.type.list_size)
    if kind is None:
        # Vectors of bits have no codes but themselves.
        candidates = [each for each in candidates if _is_supported(snapshot, column, each)]
    width = described.type.list_size * described.type.value_type.bit_width // 8
    wanted = max(LEAST_ROWS, min(SAMPLE_ROWS, SAMPLE_BYTES // width))
    values = snapshot.sample_column(described, snapshot.manifest.fragments, wanted, seed=snapshot.version)
    whole = to_matrix(values)[1]
    values = values.filter(pa.array(whole))
    if len(values) < LEAST_ROWS:
        return _without_measurement(snapshot, column, recall, memory_bytes, rows, candidates)
    most_row_bytes = None if memory_bytes is None else (memory_bytes + 0.5) / rows
    measured = measured_candidates(engine.in_process, values, candidates, recall, options, most_row_bytes)
    found = [_candidate(snapshot, column, rows, each, memory_bytes, recall) for each in measured]
    fitting = [(each, option) for each, option in zip(found, candidates, strict=True) if not each.note]
    reached = [(each, option) for each, option in fitting if each.setting is not None]
    if not fitting:
        smallest = min(found, key=lambda each: each.memory_bytes)
        raise InvalidArgument(
            f"no index on {column!r} of {snapshot.uri} takes at most {human_bytes(memory_bytes or 0)} in memory: the "
            f"smallest, {smallest}, takes {human_bytes(smallest.memory_bytes)}",
            "Give more memory",
        )
    if reached:
        fastest = min(each.setting.milliseconds for each, _ in reached if each.setting is not None)
        close = [
            (e, o) for e, o in reached if e.setting is not None and e.setting.milliseconds <= EQUAL_TIMES * fastest
        ]
        chosen, option = min(close, key=lambda pair: pair[0].memory_bytes)
        reason = f"the smallest of those that reach it within {EQUAL_TIMES:g} times the least time, {fastest:.2f} ms"
    else:
        chosen, option = max(fitting, key=lambda pair: pair[0].memory_bytes)
        reason = "no index within the memory reaches it on the sample; it has the most exact codes of those that fit"
    return IndexAdvice(
        snapshot.uri, column, recall, memory_bytes, rows, len(values), tuple(found), chosen, reason, option
    )


def vector_request(
    index_type: str | IndexOptions | None, options: Mapping[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """The kind that is given, if one is, and its options.

    Raises:
        InvalidArgument: it is no vector index.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if index_type is None:
        return None, given
    if isinstance(index_type, IndexOptions):
        chosen = index_options(index_type, options)
        fields = ((each.name, getattr(index_type, each.name), each.default) for each in options_of(type(index_type)))
        given = {name: value for name, value, default in fields if value is not None and value != default}
    else:
        chosen = index_options(index_type, {})
    if chosen.index_type not in VECTOR_OPTIONS:
        raise InvalidArgument(
            f"recall and memory do not apply to an index of type {chosen.index_type}", "Leave them out, or index_type"
        )
    return chosen.index_type, given


def advised_plan(plan: BuildPlan, advice: IndexAdvice) -> BuildPlan:
    """The plan of what was chosen, with the reason."""
    return replace(cast(VectorPlan, plan), because=str(advice))


def _candidates(kind: str | None, given: Mapping[str, Any], dim: int) -> list[IvfOptions]:
    found: list[IvfOptions] = []
    for name in OPEN_KINDS if kind is None else (kind,):
        cls = VECTOR_OPTIONS[name]
        taken = {each.name for each in options_of(cls)}
        if not given.keys() <= taken:
            continue
        varied = _parameters(name, taken, dim, given, more=kind is not None)
        options: list[dict[str, Any]] = [{**given, **parameters} for parameters in varied]
        found += [cls(**each) for each in options]
    if not found:
        raise InvalidArgument(f"no vector index takes {', '.join(sorted(given))} together", "Name the index type")
    return found


def _parameters(
    name: str, taken: set[str], dim: int, given: Mapping[str, Any], *, more: bool
) -> Sequence[Mapping[str, int]]:
    """What to vary of a kind, unless it is given."""
    if "num_sub_vectors" in taken:
        widths = MORE_SUB_DIMENSIONS if more else SUB_DIMENSIONS
        fitting = [dim // width for width in widths if dim % width == 0] or [dim]
        return [{}] if "num_sub_vectors" in given else [{"num_sub_vectors": count} for count in fitting]
    if "num_bits" in taken and VECTOR_KINDS[name].quantizer.name == "RQ":
        if dim % 8:
            return [] if not more else [{}]
        return [{}] if "num_bits" in given else [{"num_bits": bits} for bits in (MORE_BITS if more else BITS)]
    return [{}]


def _candidate(
    snapshot: Snapshot, column: str, rows: int, built: BuiltCandidate, memory_bytes: int | None, recall: float
) -> IndexCandidate:
    memory = round(built.row_bytes * rows)
    fits = memory_bytes is None or memory <= memory_bytes
    return IndexCandidate(
        built.options.index_type,
        _varied(built.options),
        memory,
        _file_bytes(snapshot, column, built.options),
        built.setting,
        "" if fits else "too large",
    )


def _is_supported(snapshot: Snapshot, column: str, options: IvfOptions) -> bool:
    try:
        _file_bytes(snapshot, column, options)
    except UnsupportedColumn:
        return False
    return True


def _file_bytes(snapshot: Snapshot, column: str, options: IvfOptions) -> int:
    plan = plan_index(
        snapshot,
        column,
        options,
        name=None,
        fragment_ids=None,
        parallelism=1,
        memory_bytes=MEMORY_BYTES,
        rows_per_task=None,
    )
    return plan.index_bytes


def _without_measurement(
    snapshot: Snapshot,
    column: str,
    recall: float,
    memory_bytes: int | None,
    rows: int,
    candidates: Sequence[IvfOptions],
) -> IndexAdvice:
    """Of few rows: all kinds are small and fast, so that the first, most exact one is taken."""
    options = candidates[0]
    nbytes = _file_bytes(snapshot, column, options)
    if memory_bytes is not None and nbytes > memory_bytes:
        raise InvalidArgument(f"an index on {column!r} takes {human_bytes(nbytes)}", "Give more memory")
    chosen = IndexCandidate(options.index_type, _varied(options), nbytes, nbytes, None, "")
    reason = f"with fewer than {LEAST_ROWS:,} vectors there is nothing to measure, and the most exact kind is fast"
    return IndexAdvice(snapshot.uri, column, recall, memory_bytes, rows, 0, (chosen,), chosen, reason, options)


def _varied(options: IvfOptions) -> dict[str, int]:
    codes = options.codes
    named = {"num_sub_vectors": codes.num_sub_vectors}
    if options.index_type.endswith("RQ"):
        named["num_bits"] = codes.num_bits
    return {name: value for name, value in named.items() if value is not None}
