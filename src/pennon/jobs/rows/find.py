"""Find the rows that a filter selects: through indices where they help, on executors otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
from pyroaring import BitMap

from pennon.engine import Engine
from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.row_set import RowSet, bitmap_of
from pennon.format.rows import ADDRESS
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import read_filter
from pennon.query.scan.execute import filter_errors
from pennon.query.scan.part_size import ROWS_PER_PART
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, plan_parts, read_part

# Tasks for each core that can run one: more would leave more, and smaller, fragments.
WAVES = 4

# Serialized offsets by fragment, as tasks return them.
FoundRows = list[tuple[int, bytes]]


def find_rows(engine: Engine, snapshot: Snapshot, filter: str | None) -> dict[int, BitMap]:
    """The live rows that a filter selects, by fragment; without a filter all of them."""
    if filter is None:
        snapshot.read_deletions(snapshot.manifest.fragments)
        return {fragment: live_rows(snapshot, fragment) for fragment in snapshot.manifest.fragments}
    request = ScanRequest(filter, (), with_row_address=True)
    parts = plan_parts(Catalog.read(snapshot, SHARED_CACHE), request)
    known = [part for part in parts if part.exact and part.found is not None]
    others = [part for part in parts if not (part.exact and part.found is not None)]
    found: dict[int, BitMap] = {}
    for part in known:
        assert part.found is not None
        add_rows(found, ((f, rows) for f, rows in part.found.by_fragment.items() if rows is not None))
    snapshot.read_deletions(found)
    for fragment in list(found):
        found[fragment] -= bitmap_of(snapshot.deleted_offsets(fragment))
    if others:
        rows = sum(part.rows for part in others)
        for result in engine.map("find rows", partial(_find, snapshot.pin(), request), others, rows=rows):
            add_rows(found, opened(result))
    return {fragment: rows for fragment, rows in found.items() if rows}


def parts_to_rewrite(engine: Engine, snapshot: Snapshot, request: ScanRequest) -> list[Part]:
    """The parts of a scan for tasks that write what they read: few and large, so that fragments are not small."""
    total = snapshot.manifest.rows_in(snapshot.manifest.live)
    rows = max(ROWS_PER_PART, total // (WAVES * engine.parallelism))
    return plan_parts(Catalog.read(snapshot, SHARED_CACHE), request, rows)


def check_filter(snapshot: Snapshot, filter: str | None) -> None:
    """Raises InvalidFilter for what is no condition over this table, before anything is read."""
    if filter is None:
        return
    sql = read_filter(filter, snapshot.column_types).sql
    with filter_errors(sql):
        snapshot.scanner({}, limit=0, columns=[], with_row_id=True, filter=sql).to_table()


def live_rows(snapshot: Snapshot, fragment: int) -> BitMap:
    rows = BitMap(range(snapshot.manifest.fragments[fragment].physical_rows))
    return rows - bitmap_of(snapshot.deleted_offsets(fragment))


def add_rows(found: dict[int, BitMap], more: Iterable[tuple[int, BitMap]]) -> None:
    for fragment, rows in more:
        found[fragment] = found[fragment] | rows if fragment in found else BitMap(rows)


def serialized(addresses: Addresses) -> FoundRows:
    """Addresses in any order, as a task returns them."""
    rows = RowSet.of_addresses(sorted_unique(addresses)).by_fragment
    return [(fragment, offsets.serialize()) for fragment, offsets in rows.items() if offsets is not None]


def opened(rows: FoundRows) -> Iterable[tuple[int, BitMap]]:
    return ((fragment, BitMap.deserialize(content)) for fragment, content in rows)


def count_rows(rows: Mapping[int, BitMap]) -> int:
    return sum(map(len, rows.values()))


def _find(pin: Pin, request: ScanRequest, part: Part) -> FoundRows:
    """Task."""
    found = [batch.column(ADDRESS).to_numpy() for batch in read_part(pin, part, request)]
    return serialized(np.concatenate(found)) if found else []
