"""One owner: rows of a fragment that an index covers are only in the files of the segment that covers it.

A segment's files keep the rows they were written with. When a column is updated in place, Lance removes the fragment
from the segment's coverage and leaves the old values in its files; compactions map them to new fragments through the
Fragment Reuse Index, or by stable row ids. Pennon drops such rows segment by segment. pylance returns a row from every
segment that holds it, if *some* segment of the index covers its fragment. So once another segment covers the fragment,
pylance returns the old values too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from pyroaring import BitMap

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import Addresses, fragment_of
from pennon.format.history import oldest_version_with
from pennon.format.index_metadata import IndexSegment
from pennon.format.segment_contents import read_contents
from pennon.format.snapshot import Snapshot
from pennon.index.cache import SHARED_CACHE, ByteCache
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.registry import kind_of, why_unusable


def held_fragments(base: Snapshot, segment: IndexSegment, among: BitMap, reuse: FragmentReuse | None) -> BitMap:
    """The subset of `among` whose rows the segment's files may hold. The result is complete; it comes from metadata
    if possible, else from the ids in the files."""
    among = among & base.manifest.live
    kind = kind_of(segment)
    if not among or kind is None:
        return BitMap()
    readable = why_unusable(base, segment) is None
    recorded = read_contents(base.store, segment) if readable else None
    if kind.stores_addresses(segment.index_version, base.manifest.has_stable_row_ids):
        if recorded is not None:
            return among & _reached(BitMap(recorded.fragments), reuse)
        oldest = oldest_version_with(base, segment)
        # Older writers do not record the highest id.
        highest = max([oldest.max_fragment_id, *oldest.fragments])
        suspects = among & _reached(BitMap(range(highest + 1)), reuse)
        return _confirmed(suspects, lambda: _reached(_stored_fragments(base, segment), reuse)) if readable else suspects
    below = recorded.row_ids_below if recorded else oldest_version_with(base, segment).next_row_id
    suspects = BitMap(f for f in among if int(base.row_ids(f).min(initial=below)) < below)
    return _confirmed(suspects, lambda: _located_fragments(base, segment)) if readable else suspects


def shared_fragments(
    base: Snapshot, segments: Sequence[IndexSegment], reuse: FragmentReuse | None
) -> dict[str, BitMap]:
    """By uuid, the fragments whose rows a segment of an index may hold although another segment covers them."""
    coverage = {s.uuid: effective_coverage(s, base, reuse, segments) for s in segments}
    shared: dict[str, BitMap] = {}
    for segment in segments:
        others = _union(fragments for uuid, fragments in coverage.items() if uuid != segment.uuid)
        held = held_fragments(base, segment, others - coverage[segment.uuid], reuse)
        if held:
            shared[segment.uuid] = held
    return shared


def newly_shared(
    base: Snapshot, before: Sequence[IndexSegment], after: Sequence[IndexSegment], reuse: FragmentReuse | None
) -> tuple[IndexSegment, BitMap] | None:
    """The first segment of an index that would share a fragment with another after a commit but does not before it."""
    old = {s.uuid: effective_coverage(s, base, reuse, before) for s in before}
    new = {s.uuid: effective_coverage(s, base, reuse, after) for s in after}
    for segment in after:
        claimed = _union(fragments for uuid, fragments in new.items() if uuid != segment.uuid) - new[segment.uuid]
        if segment.uuid in old:
            claimed -= _union(fragments for uuid, fragments in old.items() if uuid != segment.uuid)
        held = held_fragments(base, segment, claimed, reuse)
        if held:
            return segment, held
    return None


def _confirmed(suspects: BitMap, read: Callable[[], BitMap]) -> BitMap:
    try:
        return suspects & read() if suspects else suspects
    except (DamagedFile, UnsupportedTable):
        return suspects  # nothing rules them out


def _reached(fragments: BitMap, reuse: FragmentReuse | None) -> BitMap:
    return fragments if reuse is None else reuse.reached(fragments)


def _union(parts: Iterable[BitMap]) -> BitMap:
    return BitMap().union(*parts)


def _stored_fragments(base: Snapshot, segment: IndexSegment) -> BitMap:
    """The fragments of the addresses in a segment's files. Reads all addresses, once per process."""
    key = ("stored fragments", base.location.uri, segment.uuid)

    def load() -> tuple[BitMap, int]:
        found = BitMap()
        for ids in _stored_ids(base, segment):
            found |= BitMap(np.unique(fragment_of(ids)))
        return found, 1024 + 16 * len(found)

    return SHARED_CACHE.get_or_load(key, load)


def _located_fragments(base: Snapshot, segment: IndexSegment) -> BitMap:
    """The current fragments of the rows whose stable ids are in a segment's files. Reads all ids."""
    found = BitMap()
    for ids in _stored_ids(base, segment):
        addresses, there = base.address_of_id.locate(ids)
        found |= BitMap(np.unique(fragment_of(addresses[there])))
    return found


def _stored_ids(base: Snapshot, segment: IndexSegment) -> Iterator[Addresses]:
    kind, column = kind_of(segment), base.columns.by_id(segment.field_id)
    if kind is not None and column is not None:
        yield from kind.open(base, segment, column, None, ByteCache(0)).stored_ids()
