"""Merge segments of zones, or remap one: unchanged zones are copied, those of moved rows are built from the data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.addresses import Addresses, fragment_of
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.fragment_reuse.reading import FragmentReuse, read_address_map
from pennon.index.zones.layouts import Part
from pennon.jobs.shared.cleanup import scratch_directory
from pennon.jobs.zones.build import finished, join, scanned, write_part
from pennon.jobs.zones.plan_merge import Reading, ZonesMerge


def merge_zones(engine: Engine, snapshot: Snapshot, plan: ZonesMerge) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    with scratch_directory(snapshot.store) as scratch:
        built = engine.map("zones", partial(_make, plan, scratch), plan.readings, rows=plan.read_rows)
        written = join(engine, plan.target, [*plan.copied, *built], plan.index_bytes)
    return finished(snapshot, plan.target, plan.coverage, written)


def _make(plan: ZonesMerge, scratch: str, reading: Reading) -> Part:
    """Task: the zones of some rows."""
    return write_part(plan.target, scratch, _rows(plan, reading))


def _rows(plan: ZonesMerge, reading: Reading) -> Iterator[tuple[pa.Array, Addresses]]:
    for part in reading.slices:
        for values, addresses in scanned(plan.target, part):
            if reading.into is None or plan.address_map is None:
                yield values, addresses
                continue
            moved, alive = _compaction(plan.pin, plan.address_map).remap(addresses)
            alive &= np.isin(fragment_of(moved), np.array(list(reading.into), dtype=np.uint32))
            if alive.all():
                yield values, moved
            elif alive.any():
                yield values.filter(pa.array(alive)), moved[alive]


@lru_cache(maxsize=8)
def _compaction(pin: Pin, address_map: str) -> FragmentReuse:
    return read_address_map(pin.open().store, address_map)
