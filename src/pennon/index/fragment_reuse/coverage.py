"""Which fragments a segment covers: what its manifest entry lists, its kind trusts, compactions left and no writer has
changed behind its back."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap, FrozenBitMap

from pennon.format.history import oldest_version_covering
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.registry import kind_of


def effective_coverage(
    segment: IndexSegment, snapshot: Snapshot, reuse: FragmentReuse | None, siblings: Sequence[IndexSegment] = ()
) -> BitMap:
    """The live fragments that a segment answers for in this version."""
    coverage = BitMap(trusted_coverage(segment))
    if reuse is not None:
        coverage = reuse.effective(coverage)
        if reuse.tagged:
            # The tagged form does not update stored bitmaps; a fragment that a sibling lists belongs to the sibling.
            for sibling in siblings:
                if sibling.uuid != segment.uuid:
                    coverage -= BitMap(trusted_coverage(sibling))
    coverage &= snapshot.manifest.live
    return coverage - changed_in_place(segment, snapshot, coverage)


def changed_in_place(segment: IndexSegment, snapshot: Snapshot, coverage: BitMap) -> BitMap:
    """Which of the covered fragments have other values in the indexed column than they had when the segment joined the
    table, although its entry still lists them.

    Lance takes a fragment whose column changes in place out of the entry, by the ids of the fields that a writer
    reports. Of a list pylance reports the id of the elements alone, and the index is on the list. The file that holds
    the elements is then another one than in the oldest version that has the segment. Nothing shows it where that
    version is gone, or where a compaction has joined the files since; an audit compares the rows.
    """
    manifest, changed = snapshot.manifest, BitMap()
    if not manifest.is_nested(segment.field_id):
        return changed
    for fragment in coverage:
        if manifest.fragments[fragment].was_replaced and _has_other_files(segment, snapshot, fragment):
            changed.add(fragment)
    return changed


def _has_other_files(segment: IndexSegment, snapshot: Snapshot, fragment: int) -> bool:
    now = snapshot.manifest.column_files(fragment, segment.field_id)
    key = ("column files", snapshot.location.uri, segment.uuid, fragment)

    def load() -> tuple[dict[int, str] | None, int]:
        oldest = oldest_version_covering(snapshot, segment, fragment)
        return oldest.column_files(fragment, segment.field_id), 1024

    return SHARED_CACHE.get_or_load(key, load) != now


def trusted_coverage(segment: IndexSegment) -> FrozenBitMap:
    """The fragments listed in the manifest entry that the segment's files can hold rows of."""
    kind = kind_of(segment)
    return segment.fragments if kind is None else kind.trusted_coverage(segment)


def untrusted_coverage(segment: IndexSegment) -> FrozenBitMap:
    """The fragments that the entry lists although the segment's files cannot hold rows of them."""
    return segment.fragments - trusted_coverage(segment)
