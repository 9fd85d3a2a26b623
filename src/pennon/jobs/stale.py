"""Old values that a segment still holds of fragments it no longer covers.

An in-place change takes a fragment out of a segment's coverage, but its old rows stay in the segment's files. Pennon
drops them segment by segment; stock Lance drops them only as long as *no* segment of the index covers the fragment.
So a new segment over such a fragment must not stand beside the old one.
"""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from pennon.format.addresses import fragment_of
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import Manifest, manifest_paths, read_manifest
from pennon.format.snapshot import Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse import FragmentReuse
from pennon.index.registry import kind_of


def stale_fragments(base: Snapshot, segment: IndexSegment, fragments: BitMap, reuse: FragmentReuse | None) -> BitMap:
    """Which of these fragments, none of them covered by the segment, its files may hold outdated rows of."""
    suspects = _suspects(base, segment, fragments)
    if not suspects or segment.base_id is not None:  # the files of another table are not read
        return suspects
    return suspects & held_fragments(base, segment, reuse)


def _suspects(base: Snapshot, segment: IndexSegment, fragments: BitMap) -> BitMap:
    kind = kind_of(segment)
    if kind is None or not kind.stores_addresses(segment.index_version, base.manifest.has_stable_row_ids):
        return fragments  # a stable id keeps its old value when the row moves to a fragment of any age
    first = _oldest_version_with(base, segment)
    then = {s.uuid: s for s in first.segments}[segment.uuid]
    # What another segment covered when this one came was not in its files: no writer lets two answer for a row.
    others = BitMap().union(*(s.fragments for s in first.segments if s.name == segment.name and s.uuid != then.uuid))
    suspects = BitMap()
    for fragment in fragments:
        if fragment not in first.fragments:
            continue  # younger than the segment's files
        before, now = first.fragments[fragment], base.manifest.fragments.get(fragment)
        same = now and all(before.field_files.get(f) == now.field_files.get(f) for f in segment.fields)
        if not same or (fragment not in then.fragments and fragment not in others):
            suspects.add(fragment)
    return suspects


def _oldest_version_with(base: Snapshot, segment: IndexSegment) -> Manifest:
    """The oldest version still there that has the segment. A segment stays for one stretch of versions."""
    versions = sorted(v for v in manifest_paths(base.store) if v <= base.version)
    low, high = 0, len(versions) - 1
    oldest = base.manifest
    while low < high:
        middle = (low + high) // 2
        manifest = read_manifest(base.store, versions[middle])
        if any(s.uuid == segment.uuid for s in manifest.segments):
            oldest, high = manifest, middle
        else:
            low = middle + 1
    return oldest


def held_fragments(base: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None) -> BitMap:
    """Where the rows are now that a segment's files know, live or deleted. Reads every id."""
    kind, column = kind_of(segment), base.columns.by_id(segment.field_id)
    if kind is None or column is None:
        return BitMap()
    addresses = kind.stores_addresses(segment.index_version, base.manifest.has_stable_row_ids)
    held = BitMap()
    for ids in kind.open(base, segment, column, reuse, SHARED_CACHE).stored_ids():
        if not addresses:
            found, there = base.address_of_id.locate(ids)
            ids = found[there]
        elif reuse is not None:
            moved, there = reuse.remap(ids)
            ids = moved[there]
        held |= BitMap(np.unique(fragment_of(ids)))
    return held
