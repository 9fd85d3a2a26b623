"""The life of the Fragment Reuse Index: segments that catch up with it, and versions nobody needs any more.

A version is needed as long as some file names a row by an address it moves, or by one that leads there through older
versions. Metadata does not tell: bitmaps advance with every commit while files stay. So the ids themselves are read, on
executors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import CommitConflict, DamagedFile, DamagedIndexWarning, UnsupportedTable
from pennon.format.addresses import fragment_of
from pennon.format.commit import RetryableConflict
from pennon.format.index_metadata import IndexSegment
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse, effective_coverage, read_fragment_reuse
from pennon.index.registry import kind_of, why_unusable
from pennon.jobs.kinds import Work
from pennon.jobs.shared.cleanup import committing
from pennon.jobs.shared.commit import Change, publish, replace_segments
from pennon.jobs.shared.remap import Source
from pennon.jobs.shared.rewrite import build_like, move_segment

# More than this is kept in a file of its own, as stock does.
INLINE_BYTES = 204_800
EXTERNAL_FILE = "details.binpb"


@dataclass(frozen=True)
class ReuseState:
    """What a table's Fragment Reuse Index holds, and who needs it. `behind` are segments with old addresses."""

    versions: int
    size_bytes: int
    tagged: bool
    needed: tuple[bool, ...]
    behind: tuple[IndexSegment, ...]
    followable: tuple[IndexSegment, ...]  # those behind that Pennon can rewrite

    @property
    def left_behind(self) -> tuple[IndexSegment, ...]:
        """Those that it cannot."""
        return tuple(segment for segment in self.behind if segment not in self.followable)

    @property
    def removable(self) -> int:
        return sum(not needed for needed in self.needed)


def read_state(engine: Engine, snapshot: Snapshot) -> ReuseState | None:
    """None where the table has no Fragment Reuse Index."""
    reuse = read_fragment_reuse(snapshot)
    if reuse is None:
        return None
    held = _held(engine, snapshot, reuse)
    old = BitMap(reuse.old_fragments)
    behind = tuple(s for s in snapshot.manifest.user_segments if s.uuid in held and held[s.uuid] & old)
    followable = tuple(segment for segment in behind if why_unusable(snapshot, segment) is None)
    needed = _needed(reuse, held.values())
    return ReuseState(len(reuse.versions), reuse.size_bytes, reuse.tagged, needed, behind, followable)


def catch_up(engine: Engine, snapshot: Snapshot, memory_bytes: int) -> tuple[Snapshot, int]:
    """Rewrite every segment whose files name rows by addresses that moved. Returns how many were rewritten."""
    state = read_state(engine, snapshot)
    work, newest, done = Work(engine, snapshot, memory_bytes), snapshot, 0
    reuse = read_fragment_reuse(snapshot)
    for segment in state.followable if state else ():
        coverage = _coverage(snapshot, segment, reuse)
        try:
            new = _caught_up(work, Source(segment, FrozenBitMap(coverage)))
        except UnsupportedTable:
            continue  # stays behind, as those do that the manifest says it of
        with committing(snapshot, [new]):
            newest = publish(snapshot, replace_segments(segment.name, [new], [segment]))
        snapshot.store.delete_directory(new.directory, keep=new.file_sizes)
        done += 1
    return newest, done


def _caught_up(work: Work, source: Source) -> IndexSegment:
    """From the data, where the segment's own files are damaged."""
    try:
        return move_segment(work, source)
    except DamagedFile as error:
        warnings.warn(
            f"a segment of index {source.segment.name!r} of {work.snapshot.uri} is built from the data instead:"
            f" {error.problem}",
            DamagedIndexWarning,
            stacklevel=2,
        )
        return build_like(work, source.segment, list(source.coverage))


def may_trim(snapshot: Snapshot, reuse: FragmentReuse) -> bool:
    """Whether it is worth reading the files: by the metadata, some version may not be needed any more."""
    everything = BitMap(reuse.old_fragments) | reuse.new_fragments
    concerned = [s for s in snapshot.manifest.user_segments if BitMap(s.fragments) & everything]
    oldest = min((segment.dataset_version for segment in concerned), default=snapshot.version)
    return any(version.dataset_version < oldest for version in reuse.versions)


def trim(engine: Engine, snapshot: Snapshot) -> tuple[Snapshot, int]:
    """Remove the versions that no file needs. Returns how many were removed."""
    base = snapshot.latest()
    for _ in range(8):
        reuse = read_fragment_reuse(base)
        if reuse is None:
            return base, 0
        check_untagged(base, reuse)
        needed = _needed(reuse, _held(engine, base, reuse).values())
        if all(needed):
            return base, 0
        entry = _entry(base, reuse, needed)
        try:
            with committing(base, [entry] if entry else []):
                committed = publish(base, partial(_trimmed, base, reuse, needed, entry))
        except (RetryableConflict, _Overtaken):
            base = base.latest()
            continue
        return committed, sum(not each for each in needed)
    raise CommitConflict(f"{base.uri} changes too fast to trim its Fragment Reuse Index", "Try again later")


def check_untagged(snapshot: Snapshot, reuse: FragmentReuse) -> None:
    if reuse.tagged:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {snapshot.uri} has the newer tagged form, which Pennon reads but does not"
            " write",
            "Use the tool that wrote it",
        )


class _Overtaken(CommitConflict):
    """What was read of the files no longer tells of the newest version."""


def _trimmed(
    seen: Snapshot, reuse: FragmentReuse, needed: Sequence[bool], entry: IndexSegment | None, base: Snapshot
) -> Change:
    old = base.manifest.reuse_segment
    known = {segment.uuid for segment in seen.manifest.user_segments}
    if old is None or old.uuid != reuse.uuid or any(s.uuid not in known for s in base.manifest.user_segments):
        raise _Overtaken(f"the indices of {base.uri} changed meanwhile")
    gone = BitMap().union(*(v.old_fragments for v, kept in zip(reuse.versions, needed, strict=True) if not kept))
    # Bitmaps that still speak of the old fragments are brought up to date in the same breath.
    advanced = [
        replace(segment, fragments=FrozenBitMap(effective_coverage(segment, base, reuse)))
        for segment in base.manifest.user_segments
        if BitMap(segment.fragments) & gone
    ]
    return Change((*advanced, *([entry] if entry else [])), (old,))


def _entry(base: Snapshot, reuse: FragmentReuse, needed: Sequence[bool]) -> IndexSegment | None:
    """The Fragment Reuse Index with the versions that stay; None when none does."""
    kept = [version for version, stays in zip(reuse.content.versions, needed, strict=True) if stays]
    old = base.manifest.reuse_segment
    if not kept or old is None:
        return None
    content = pb.FragmentReuseContent(versions=kept)
    uuid, raw = str(uuid4()), content.SerializeToString()
    details = pb.FragmentReuseDetails(inline=content)
    if len(raw) > INLINE_BYTES:
        base.store.write(f"_indices/{uuid}/{EXTERNAL_FILE}", raw)
        details = pb.FragmentReuseDetails(external=pb.ExternalFile(path=EXTERNAL_FILE, offset=0, size=len(raw)))
    fragments = BitMap(d.id for version in kept for group in version.groups for d in group.new_fragments)
    return replace(
        old,
        uuid=uuid,
        dataset_version=base.version,
        fragments=FrozenBitMap(fragments & base.manifest.live),
        details=details.SerializeToString(),
        files=(),
        base_id=None,  # what a branch or a clone shares with another table, it shares no longer
        created_at=datetime.now(UTC),
    )


def _needed(reuse: FragmentReuse, held: Iterable[BitMap]) -> tuple[bool, ...]:
    """Which versions an address in a file can meet, directly or moved there by an earlier one."""
    reached = BitMap().union(*held)
    needed: list[bool] = []
    for version in reuse.versions:
        met = [group for group in version.groups if reached & BitMap(d.id for d in group.old)]
        needed.append(bool(met))
        for group in met:
            reached |= BitMap(d.id for d in group.new)
    return tuple(needed)


def _held(engine: Engine, snapshot: Snapshot, reuse: FragmentReuse) -> dict[str, BitMap]:
    """By segment that covers something, the fragments of the addresses in its files. Where files cannot be read: of all
    that ever were."""
    stable = snapshot.manifest.has_stable_row_ids
    held: dict[str, BitMap] = {}
    readable: list[IndexSegment] = []
    for segment in snapshot.manifest.user_segments:
        kind = kind_of(segment)
        if not _coverage(snapshot, segment, reuse):
            continue  # no query takes a row of it
        if kind is None or why_unusable(snapshot, segment) is not None:
            held[segment.uuid] = BitMap(reuse.old_fragments)
        elif kind.stores_addresses(segment.index_version, stable):
            readable.append(segment)
    if readable:
        rows = sum(snapshot.manifest.rows_in(effective_coverage(segment, snapshot, reuse)) for segment in readable)
        found = engine.map("addresses", partial(_fragments_in, snapshot.pin()), readable, rows=rows)
        everything = BitMap(reuse.old_fragments)
        held |= {s.uuid: everything if f is None else f for s, f in zip(readable, found, strict=True)}
    return held


def _coverage(snapshot: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None) -> BitMap:
    siblings = [s for s in snapshot.manifest.user_segments if s.name == segment.name]
    return effective_coverage(segment, snapshot, reuse, siblings)


def _fragments_in(pin: Pin, segment: IndexSegment) -> BitMap | None:
    """Task: None where the files cannot be read."""
    snapshot = pin.open()
    kind, column = kind_of(segment), snapshot.columns.by_id(segment.field_id)
    if kind is None or column is None:
        return None
    held = BitMap()
    try:
        for ids in kind.open(snapshot, segment, column, None, ByteCache(0)).stored_ids():
            held |= BitMap(np.unique(fragment_of(ids)))
    except (DamagedFile, UnsupportedTable):
        return None
    return held
