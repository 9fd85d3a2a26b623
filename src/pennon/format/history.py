"""Older versions of a table, as far as they are still there."""

from __future__ import annotations

from collections.abc import Callable

from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import Manifest, manifest_paths, read_manifest
from pennon.format.rows import RowReader


def oldest_version_with(base: RowReader, segment: IndexSegment) -> Manifest:
    """An old version that has the segment, usually the oldest one: its files hold nothing that was added later."""
    return _oldest(base, lambda manifest: any(s.uuid == segment.uuid for s in manifest.segments))


def oldest_version_covering(base: RowReader, segment: IndexSegment, fragment: int) -> Manifest:
    """The same with a fragment that the segment covers today: a compaction may have written it later."""
    return _oldest(
        base,
        lambda manifest: fragment in manifest.fragments and any(s.uuid == segment.uuid for s in manifest.segments),
    )


def _oldest(base: RowReader, holds: Callable[[Manifest], bool]) -> Manifest:
    """By halves: what holds for a version holds for all later ones up to `base`, of which it holds."""
    versions = sorted(v for v in manifest_paths(base.store) if v <= base.manifest.version)
    low, high = 0, len(versions) - 1
    oldest = base.manifest
    while low < high:
        middle = (low + high) // 2
        manifest = read_manifest(base.store, versions[middle])
        if holds(manifest):
            oldest, high = manifest, middle
        else:
            low = middle + 1
    return oldest
