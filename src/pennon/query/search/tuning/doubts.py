"""Whether what was measured and stored still holds: the table may have grown, and its indices may be others."""

from __future__ import annotations

from collections.abc import Sequence

from pennon.errors import PennonError
from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.request import SearchRequest, read_request
from pennon.query.search.source import Source, sources_of
from pennon.query.search.tuning.record import UNCOVERED, IndexState, Tuning, stored_tunings


def doubts(catalog: Catalog, tuning: Tuning, sources: Sequence[Source]) -> tuple[list[str], frozenset[str | None]]:
    """Why a measurement may no longer hold, and the indices for which it does not at all."""
    now = {source.index: source for source in sources}
    found: list[str] = []
    invalid: set[str | None] = set()
    for state in tuning.indices:
        source = now.get(state.name)
        if source is None:
            found.append(f"index {state.name!r} is gone")
            invalid.add(state.name)
            continue
        current = _state(catalog, source)
        replaced = state.replaced(current)
        if replaced is not None:
            invalid.add(state.name)
        found += [replaced] if replaced else state.doubts(current)
        rows = catalog.snapshot.manifest.rows_in(source.exact)
        if rows > UNCOVERED * max(1, current.rows):
            found.append(f"index {state.name!r} lacks {rows:,} rows, which every search measures")
    return found, frozenset(invalid)


def _state(catalog: Catalog, source: Source) -> IndexState:
    """Of this version; the centroids are read for it."""
    memory, key = catalog.memory, ("state", source.index)
    if key not in memory:
        memory[key] = IndexState.of(source)
    return memory[key]


def doubtful_tunings(catalog: Catalog) -> list[tuple[Tuning, list[str]]]:
    """What is stored with the table and no longer certain, with the reasons."""
    found = [(tuning, _doubts(catalog, tuning)) for tuning in stored_tunings(catalog)]
    return [(tuning, reasons) for tuning, reasons in found if reasons]


def _doubts(catalog: Catalog, tuning: Tuning) -> list[str]:
    while True:
        try:
            request = SearchRequest.of(tuning.column, tuning.k, {"metric": tuning.metric})
            question = read_request(catalog.snapshot, request, (), many=True)
            sources = [source for source in sources_of(catalog, question) if source.segments]
            return doubts(catalog, tuning, sources)[0]
        except UnusableSegment as unusable:
            catalog.exclude(unusable)
        except PennonError as error:
            return [error.problem]
