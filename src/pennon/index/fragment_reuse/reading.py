"""The Fragment Reuse Index (FRI): where compaction moved rows that index files still name by their old addresses.

Each version holds groups; a group records which rows of its old fragments survived, and they fill its new fragments in
order: old fragments as recorded, offsets ascending. Versions apply oldest first, to every stored address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, read_address_bitmap
from pennon.format.fragment_reuse_file import read_content
from pennon.format.fragments import MAX_ROWS, Fragment
from pennon.format.index_metadata import IndexSegment
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse.address_map import AddressMap, surviving_runs


@dataclass(frozen=True, slots=True)
class FragmentDigest:
    id: int
    physical_rows: int
    num_deleted_rows: int


@dataclass(frozen=True)
class ReuseGroup:
    """Old fragments that became new ones. `known` is False when the mapping is of a kind Pennon cannot follow."""

    old: tuple[FragmentDigest, ...]
    new: tuple[FragmentDigest, ...]
    known: bool
    address_map: AddressMap

    def advance(self, fragments: BitMap) -> None:
        """Move coverage in place: all old fragments covered -> the new ones are, some -> neither old nor new are."""
        old = BitMap(d.id for d in self.old)
        hit = old & fragments
        if hit:
            fragments -= hit
            if hit == old and self.known:
                fragments |= BitMap(d.id for d in self.new)


@dataclass(frozen=True)
class ReuseVersion:
    dataset_version: int
    groups: tuple[ReuseGroup, ...]

    @cached_property
    def old_fragments(self) -> BitMap:
        return BitMap(d.id for group in self.groups for d in group.old)


@dataclass(frozen=True)
class FragmentReuse:
    """All outstanding compactions of a table, oldest first. `content` is what was read."""

    uuid: str
    versions: tuple[ReuseVersion, ...]
    tagged: bool
    size_bytes: int
    content: pb.FragmentReuseContent = field(repr=False)

    def effective(self, stored: BitMap) -> BitMap:
        """The coverage a stored bitmap means today, before it is met with the live fragments."""
        fragments = BitMap(stored)
        for version in self.versions:
            for group in version.groups:
                group.advance(fragments)
        return fragments

    def reached(self, fragments: BitMap) -> BitMap:
        """The fragments that rows of these may be in or have passed through, these among them."""
        reached = BitMap(fragments)
        for version in self.versions:
            for group in version.groups:
                if any(d.id in reached for d in group.old):
                    reached |= BitMap(d.id for d in group.new)
        return reached

    def remap(self, addresses: Addresses) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The current address of each stored one, and whether the row still exists."""
        return self.address_map.apply(addresses)

    def remap_ascending(self, addresses: Addresses) -> Addresses:
        """The current addresses, ascending, of those stored ones whose rows still exist. The stored ones are ascending,
        each once; the array is used for the result."""
        return self.address_map.apply_ascending(addresses)

    @cached_property
    def address_map(self) -> AddressMap:
        """All versions at once. The newest first: only the runs of the version that is added are cut then."""
        result = AddressMap.none()
        for version in reversed(self.versions):
            result = AddressMap.joined([group.address_map for group in version.groups]).then(result)
        return result

    @cached_property
    def old_fragments(self) -> BitMap:
        return BitMap().union(*(version.old_fragments for version in self.versions))

    @cached_property
    def new_fragments(self) -> BitMap:
        return BitMap(d.id for version in self.versions for group in version.groups for d in group.new)

    def contradiction(self, fragments: Mapping[int, Fragment]) -> str | None:
        """Why these compactions cannot have led to the fragments of a table, None when they can."""
        for digest in (d for version in self.versions for group in version.groups for d in group.new):
            there = fragments.get(digest.id)
            if there is not None and there.physical_rows != digest.physical_rows:
                return (
                    f"the Fragment Reuse Index moves {digest.physical_rows:,} rows into fragment {digest.id},"
                    f" which has {there.physical_rows:,}"
                )
        live = [fragment for fragment in self.old_fragments if fragment in fragments]
        if not live:
            return None
        some = ", ".join(map(str, live[:5])) + (", ..." if len(live) > 5 else "")
        return f"the Fragment Reuse Index moves rows out of live fragments ({some})"

    def followed_by(self, later: FragmentReuse) -> FragmentReuse:
        return replace(self, versions=(*self.versions, *later.versions))


def read_fragment_reuse(snapshot: Snapshot) -> FragmentReuse | None:
    """Read once per process: an entry never changes, another one has another uuid."""
    segment = snapshot.manifest.reuse_segment
    if segment is None:
        return None
    key = (snapshot.location.uri, segment.uuid, segment.dataset_version, len(segment.details))
    known = SHARED_CACHE.get(key)
    if known is None:
        known = _read(snapshot, segment)
        SHARED_CACHE.put(key, known, 4 * known.size_bytes + 4096)
    return known


def read_address_map(store: Store, path: str) -> FragmentReuse:
    """A running compaction, from a file of its job."""
    return _parse(store.read(path), f"the file {store.describe(path)}", "", 0, tagged=False)


def _read(snapshot: Snapshot, segment: IndexSegment) -> FragmentReuse:
    where = f"the Fragment Reuse Index of {snapshot.uri}"
    raw = read_content(snapshot.store_of(segment.base_id), segment)
    # A tagged entry below index version 1 is not honored by any reader.
    return _parse(raw, where, segment.uuid, segment.dataset_version, tagged=segment.index_version >= 1)


def _parse(raw: bytes, where: str, uuid: str, dataset_version: int, *, tagged: bool) -> FragmentReuse:
    try:
        content = pb.FragmentReuseContent.FromString(raw)
    except DecodeError as error:
        raise DamagedFile(f"{where} cannot be read: {error}") from error
    versions = [
        ReuseVersion(
            v.dataset_version,
            tuple(_group(g.old_fragments, g.new_fragments, g.changed_row_addrs, where) for g in v.groups),
        )
        for v in content.versions
    ]
    _check_once(versions, where)
    tagged = tagged and bool(content.transitions)
    if tagged:
        versions += _transitions(content.transitions, dataset_version, where)
    return FragmentReuse(uuid, tuple(versions), tagged, len(raw), content)


def _check_once(versions: Sequence[ReuseVersion], where: str) -> None:
    """Ids of fragments are never used again: each is moved from once and comes into being once."""
    for kind in ("old", "new"):
        seen: set[int] = set()
        for digest in (d for version in versions for group in version.groups for d in getattr(group, kind)):
            if digest.id in seen:
                raise DamagedFile(f"{where} has fragment {digest.id} twice among its {kind} ones")
            seen.add(digest.id)


def _group(
    old: Sequence[pb.FragmentDigest], new: Sequence[pb.FragmentDigest], survivors: bytes | None, where: str
) -> ReuseGroup:
    old_digests, new_digests = tuple(map(_digest, old)), tuple(map(_digest, new))
    if survivors is None:
        nothing = np.empty(0, dtype=np.uint64)
        address_map = AddressMap.of_runs([(d.id, nothing, nothing) for d in old_digests], [])
        return ReuseGroup(old_digests, new_digests, False, address_map)
    addresses = read_address_bitmap(survivors, where)
    if len(addresses) != sum(d.physical_rows for d in new_digests):
        raise DamagedFile(
            f"{where} moves {len(addresses)} rows into {sum(d.physical_rows for d in new_digests)} places"
        )
    # Survivors fill the new fragments in the recorded order of the old ones, which need not be ascending.
    runs = [surviving_runs(addresses, d.id, d.physical_rows) for d in old_digests]
    if sum(int(lengths.sum()) for _, _, lengths in runs) != len(addresses):
        raise DamagedFile(f"{where} moves rows of fragments it does not name")
    return ReuseGroup(
        old_digests, new_digests, True, AddressMap.of_runs(runs, [(d.id, d.physical_rows) for d in new_digests])
    )


def _transitions(transitions: Sequence[pb.Transition], dataset_version: int, where: str) -> list[ReuseVersion]:
    """The tagged form, in lineage order: what produces a fragment comes before what consumes it."""
    producers: dict[int, list[int]] = {}
    for number, t in enumerate(transitions):
        for d in t.destinations:
            producers.setdefault(d.id, []).append(number)
    needs = {number: [p for d in t.sources for p in producers.get(d.id, ())] for number, t in enumerate(transitions)}
    try:
        order = [*TopologicalSorter(needs).static_order()]
    except CycleError as error:
        raise DamagedFile(f"{where} has compactions that form a cycle") from error
    ordered: list[ReuseVersion] = []
    for t in (transitions[number] for number in order):
        survivors = t.ordered_compaction.changed_row_addrs if t.WhichOneof("mapping") == "ordered_compaction" else None
        ordered.append(ReuseVersion(dataset_version, (_group(t.sources, t.destinations, survivors, where),)))
    return ordered


def _digest(proto: pb.FragmentDigest) -> FragmentDigest:
    if proto.id >= MAX_ROWS or proto.physical_rows > MAX_ROWS:
        raise DamagedFile(
            f"the Fragment Reuse Index has fragment {proto.id} of {proto.physical_rows} rows, which no address can name"
        )
    return FragmentDigest(proto.id, proto.physical_rows, proto.num_deleted_rows)
