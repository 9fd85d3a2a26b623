"""The Fragment Reuse Index (FRI): where compaction moved rows that index files still know by their old addresses.

Each version holds groups; a group says which rows of its old fragments survived, and they fill its new fragments in
order: old fragments as recorded, offsets ascending. Versions apply oldest first, to every stored address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import OFFSET_BITS, Addresses, fragment_of, read_address_bitmap
from pennon.format.index_metadata import IndexSegment
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FragmentDigest:
    id: int
    physical_rows: int
    num_deleted_rows: int


@dataclass(frozen=True)
class ReuseGroup:
    """Old fragments that became new ones. `survivors` is None when the mapping is of a kind Pennon cannot follow."""

    old: tuple[FragmentDigest, ...]
    new: tuple[FragmentDigest, ...]
    survivors: Addresses | None

    @cached_property
    def _destinations(self) -> Addresses:
        """New address of each survivor, survivors ascending."""
        assert self.survivors is not None
        slots = np.concatenate([_addresses(d.id, d.physical_rows) for d in self.new]) if self.new else self.survivors
        # Survivors fill the slots in the recorded order of the old fragments, which need not be ascending.
        bounds = {d.id: np.searchsorted(self.survivors, [d.id << 32, (d.id + 1) << 32]) for d in self.old}
        result = np.empty_like(self.survivors)
        filled = 0
        for digest in self.old:
            low, high = bounds[digest.id]
            result[low:high] = slots[filled : filled + high - low]
            filled += high - low
        return result

    def remap(self, addresses: Addresses, alive: npt.NDArray[np.bool_]) -> None:
        """Move addresses in place; those of rows that did not survive are marked dead."""
        hit = alive & np.isin(fragment_of(addresses), np.array([d.id for d in self.old], dtype=np.uint32))
        if not hit.any():
            return
        if self.survivors is None or len(self.survivors) == 0:
            alive[hit] = False
            return
        moved = addresses[hit]
        at = np.minimum(np.searchsorted(self.survivors, moved), len(self.survivors) - 1)
        survived = self.survivors[at] == moved
        addresses[hit] = np.where(survived, self._destinations[at], moved)
        alive[hit] = survived

    def advance(self, fragments: BitMap) -> None:
        """Move coverage in place: all old fragments covered -> the new ones are, some -> neither old nor new are."""
        old = BitMap(d.id for d in self.old)
        hit = old & fragments
        if hit:
            fragments -= hit
            if hit == old and self.survivors is not None:
                fragments |= BitMap(d.id for d in self.new)


@dataclass(frozen=True)
class ReuseVersion:
    dataset_version: int
    groups: tuple[ReuseGroup, ...]


@dataclass(frozen=True)
class FragmentReuse:
    """All outstanding moves of a table, oldest first."""

    uuid: str
    versions: tuple[ReuseVersion, ...]
    tagged: bool
    size_bytes: int

    def effective(self, stored: BitMap) -> BitMap:
        """The coverage a stored bitmap means today, before it is met with the live fragments."""
        fragments = BitMap(stored)
        for version in self.versions:
            for group in version.groups:
                group.advance(fragments)
        return fragments

    def remap(self, addresses: Addresses) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """Today's address of each stored one, and whether the row still exists."""
        moved = addresses.copy()
        alive = np.ones(len(moved), dtype=np.bool_)
        for version in self.versions:
            for group in version.groups:
                group.remap(moved, alive)
        return moved, alive

    @cached_property
    def old_fragments(self) -> BitMap:
        return BitMap(d.id for version in self.versions for group in version.groups for d in group.old)


def read_fragment_reuse(snapshot: Snapshot) -> FragmentReuse | None:
    segment = snapshot.manifest.reuse_segment
    if segment is None:
        return None
    where = f"the Fragment Reuse Index of {snapshot.uri}"
    try:
        content, size = _content(snapshot, segment)
    except DecodeError as error:
        raise DamagedFile(f"{where} cannot be read: {error}") from error
    versions = [
        ReuseVersion(
            v.dataset_version,
            tuple(_group(g.old_fragments, g.new_fragments, g.changed_row_addrs, where) for g in v.groups),
        )
        for v in content.versions
    ]
    # A tagged entry below index version 1 is not honoured by any reader.
    tagged = bool(content.transitions) and segment.index_version >= 1
    if tagged:
        versions += _transitions(content.transitions, segment.dataset_version, where)
    return FragmentReuse(segment.uuid, tuple(versions), tagged, size)


def effective_coverage(
    segment: IndexSegment, snapshot: Snapshot, reuse: FragmentReuse | None, siblings: Sequence[IndexSegment] = ()
) -> BitMap:
    """The live fragments a segment answers for in this version."""
    coverage = BitMap(segment.fragments)
    if reuse is not None:
        coverage = reuse.effective(coverage)
        if reuse.tagged:
            # The tagged form leaves stored bitmaps alone; what a sibling lists by itself is the sibling's.
            for sibling in siblings:
                if sibling.uuid != segment.uuid:
                    coverage -= BitMap(sibling.fragments)
    return coverage & snapshot.manifest.live


def _content(snapshot: Snapshot, segment: IndexSegment) -> tuple[pb.FragmentReuseContent, int]:
    details = pb.FragmentReuseDetails.FromString(segment.details)
    if details.WhichOneof("content") != "external":
        return details.inline, len(segment.details)
    file = details.external
    if "/" in file.path or ".." in file.path or "\\" in file.path:
        raise DamagedFile(
            f"the Fragment Reuse Index of {snapshot.uri} names a file outside its directory: {file.path!r}"
        )
    raw = snapshot.store.read(f"{segment.directory}/{file.path}")
    if file.offset + file.size > len(raw):
        raise DamagedFile(f"{snapshot.store.describe(segment.directory)}/{file.path} is shorter than recorded")
    return pb.FragmentReuseContent.FromString(raw[file.offset : file.offset + file.size]), file.size


def _group(
    old: Sequence[pb.FragmentDigest], new: Sequence[pb.FragmentDigest], survivors: bytes | None, where: str
) -> ReuseGroup:
    old_digests, new_digests = tuple(map(_digest, old)), tuple(map(_digest, new))
    if survivors is None:
        return ReuseGroup(old_digests, new_digests, None)
    addresses = read_address_bitmap(survivors, where)
    if len(addresses) != sum(d.physical_rows for d in new_digests):
        raise DamagedFile(
            f"{where} moves {len(addresses)} rows into {sum(d.physical_rows for d in new_digests)} places"
        )
    if not np.isin(fragment_of(addresses), [d.id for d in old_digests]).all():
        raise DamagedFile(f"{where} moves rows of fragments it does not name")
    return ReuseGroup(old_digests, new_digests, addresses)


def _transitions(transitions: Sequence[pb.Transition], dataset_version: int, where: str) -> list[ReuseVersion]:
    """The tagged form, in lineage order: what produces a fragment comes before what consumes it."""
    pending = list(transitions)
    ordered: list[ReuseVersion] = []
    while pending:
        produced = {d.id for t in pending for d in t.destinations}
        ready = [t for t in pending if not any(d.id in produced for d in t.sources)]
        if not ready:
            raise DamagedFile(f"{where} has moves that form a circle")
        for t in ready:
            survivors = (
                t.ordered_compaction.changed_row_addrs if t.WhichOneof("mapping") == "ordered_compaction" else None
            )
            ordered.append(ReuseVersion(dataset_version, (_group(t.sources, t.destinations, survivors, where),)))
        pending = [t for t in pending if t not in ready]
    return ordered


def _digest(proto: pb.FragmentDigest) -> FragmentDigest:
    return FragmentDigest(proto.id, proto.physical_rows, proto.num_deleted_rows)


def _addresses(fragment: int, rows: int) -> Addresses:
    return np.arange(rows, dtype=np.uint64) | (np.uint64(fragment) << OFFSET_BITS)
