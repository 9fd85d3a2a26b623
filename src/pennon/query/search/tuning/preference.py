"""Which of several indices on a column answers a search that names none, and why."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pennon.index.vector.kinds import SubIndex
from pennon.index.vector.metric import Metric
from pennon.index.vector.search.segment import VectorSegment
from pennon.query.catalog import Catalog, UsableIndex
from pennon.query.search.tuning.record import Tuning, stored_tunings
from pennon.query.search.tuning.settings import Measured, Setting
from pennon.wording import plural

# Rows that an index may lack of what another covers, as a share of the table and at least: they are measured quickly.
LACKING_SHARE, LACKING_ROWS = 0.01, 1000
# Recalls that differ by less are equal, and the faster one is taken.
EQUAL_RECALL = 0.01

Candidate = tuple[UsableIndex, VectorSegment]


def preferred(
    catalog: Catalog, column: str, metric: Metric, candidates: Sequence[Candidate]
) -> tuple[UsableIndex | None, str | None]:
    """The index to use, and the reason if there are several. Candidates come with their first segment, the one that
    covers most rows first."""
    if len(candidates) < 2:
        return (candidates[0][0], None) if candidates else (None, None)
    manifest = catalog.snapshot.manifest
    covered = [manifest.rows_in(index.coverage) for index, _ in candidates]
    least = covered[0] - max(LACKING_ROWS, LACKING_SHARE * manifest.rows_in(manifest.live))
    kept = [candidate for candidate, rows in zip(candidates, covered, strict=True) if rows >= least]
    of_all = f"of {len(candidates)} indices"
    if len(kept) == 1:
        return kept[0][0], f"{of_all}, it covers most rows"
    measured = _by_measurement(catalog, column, metric, kept)
    if measured is not None:
        index, point = measured
        reason = f"recall {point.recall.mean:.3f} in {point.milliseconds:.2f} ms by default, as `tune` measured"
        return index, f"{of_all}, {reason}"
    index, first = max(kept, key=lambda candidate: (_code_bits(candidate[1]), _has_graphs(candidate[1])))
    bits = plural(round(_code_bits(first)), "bit")
    return index, f"{of_all}, its codes are the most exact ({bits} a dimension); `tune` would measure it"


def _by_measurement(
    catalog: Catalog, column: str, metric: Metric, candidates: Sequence[Candidate]
) -> tuple[UsableIndex, Measured] | None:
    """By the recall and time of default settings, if those of all candidates are stored."""
    for tuning in stored_tunings(catalog):
        if (tuning.column, tuning.metric, tuning.filter) != (column, metric.value, None):
            continue
        points = {point.setting: point for point in tuning.points}
        found = [(index, points.get(Setting(index.name))) for index, _ in candidates if _is_same(tuning, index)]
        known = [(index, point) for index, point in found if point is not None]
        if len(known) < len(candidates):
            continue
        best = max(point.recall.mean for _, point in known)
        equal = [each for each in known if each[1].recall.mean >= best - EQUAL_RECALL]
        return min(equal, key=lambda each: each[1].milliseconds)
    return None


def _is_same(tuning: Tuning, index: UsableIndex) -> bool:
    """Whether a segment is left of those that were measured."""
    uuids = {usable.segment.uuid for usable in index.segments}
    return any(state.name == index.name and not uuids.isdisjoint(state.segments) for state in tuning.indices)


def _code_bits(first: VectorSegment) -> float:
    """Bits for each dimension of a row."""
    stored = sum(_bits(field.type) for field in first.files.quantizer.fields())
    return stored / max(1, first.files.ivf.dim)


def _bits(type_: pa.DataType) -> int:
    return type_.list_size * _bits(type_.value_type) if pa.types.is_fixed_size_list(type_) else type_.bit_width


def _has_graphs(first: VectorSegment) -> bool:
    return first.files.kind.sub_index is SubIndex.HNSW
