"""Which fragments a segment covers: what its manifest entry lists, its kind trusts and compactions left."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap, FrozenBitMap

from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
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
    return coverage & snapshot.manifest.live


def trusted_coverage(segment: IndexSegment) -> FrozenBitMap:
    """The fragments listed in the manifest entry that the segment's files can hold rows of."""
    kind = kind_of(segment)
    return segment.fragments if kind is None else kind.trusted_coverage(segment)


def untrusted_coverage(segment: IndexSegment) -> FrozenBitMap:
    """The fragments that the entry lists although the segment's files cannot hold rows of them."""
    return segment.fragments - trusted_coverage(segment)
