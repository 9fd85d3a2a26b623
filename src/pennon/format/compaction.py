"""Compaction: rewriting fragments into fewer and fuller ones, and the ways to commit that.

Planning and rewriting are pylance's own; rows keep their order, so the k-th surviving row of a group's old fragments is
the k-th row of its new ones. What differs is what a commit does to the indices: `commit_deferred` records the moves in
the Fragment Reuse Index, `commit_dropping` leaves the new fragments to be scanned, and `commit_remapped` brings index
files that know the new addresses already.

pylance compares a commit only with what happened after the version it is said to be based on. Rewritten data may be
based on any version in which its old fragments are what they were when they were read, so that is checked here, and a
commit names the newest version as its base: whatever slips in after that is pylance's to detect.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import lance
import lance.optimize
from lance.fragment import FragmentMetadata
from pyroaring import BitMap, FrozenBitMap

from pennon.errors import BuildFailed, CommitConflict, InvalidArgument, UnsupportedTable
from pennon.format.commit import RetryableConflict, commit_operation, commit_segments, raise_conflict
from pennon.format.failures import answering
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import (
    FLAG_TAGGED_REUSE,
    DeletionFile,
    Fragment,
    manifest_paths,
    read_manifest,
)
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import Store, reading

DATA = "data"
# Ids left free below those of remapped fragments, for writers that append while index files are being written: one id
# taken by them would make those files worthless.
SPARE_IDS = 1024
# Parts of pylance its type stubs leave out.
_native: Any = lance.optimize


@dataclass(frozen=True, kw_only=True)
class CompactionOptions:
    """What to rewrite and how; None leaves the choice to pylance.

    The `max_source_*` limits take the oldest fragments first, for a table that is compacted in several runs.
    """

    target_rows_per_fragment: int = 1_048_576
    max_rows_per_group: int | None = None
    max_bytes_per_file: int | None = None
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    num_threads: int | None = None
    batch_size: int | None = None
    io_buffer_size: int | None = None
    compaction_mode: Literal["reencode", "try_binary_copy", "force_binary_copy"] | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if option.name == "materialize_deletions_threshold":
                continue  # with 0, in pylance too, a fragment with any deleted row is rewritten
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise InvalidArgument(f"{option.name} must be positive, not {value}")
        if not 0 <= self.materialize_deletions_threshold <= 1:
            raise InvalidArgument(
                f"materialize_deletions_threshold is a share of the rows, not {self.materialize_deletions_threshold}",
                "Give a number between 0 and 1",
            )
        modes = ("reencode", "try_binary_copy", "force_binary_copy")
        if self.compaction_mode is not None and self.compaction_mode not in modes:
            raise InvalidArgument(
                f"there is no compaction mode {self.compaction_mode!r}", f"Choose one of: {', '.join(modes)}"
            )

    def to_lance(self) -> dict[str, Any]:
        given = {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return given | {"excluded_fragment_ids": list(self.excluded_fragment_ids)}


@dataclass(frozen=True, slots=True)
class OldFragment:
    """A fragment as it was read. `files` and `deletion_file` are what its rows come from; `size_bytes` is None where
    the table does not record the sizes of its files."""

    id: int
    physical_rows: int
    files: frozenset[str] = field(repr=False)
    deletion_file: DeletionFile | None = field(repr=False)
    size_bytes: int | None

    @property
    def num_deleted_rows(self) -> int:
        return self.deletion_file.num_deleted_rows if self.deletion_file else 0

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.num_deleted_rows


@dataclass(frozen=True, slots=True)
class NewFragment:
    """A fragment that was written. Its id is given by the commit, unless `assign_fragment_ids` has given one."""

    id: int | None
    physical_rows: int
    files: tuple[str, ...] = field(repr=False)
    metadata: str = field(repr=False)  # pylance's JSON

    def to_lance(self) -> FragmentMetadata:
        return dataclasses.replace(FragmentMetadata.from_json(self.metadata), id=self.id or 0)


@dataclass(frozen=True)
class CompactionTask:
    """Fragments that are rewritten together; `content` is pylance's JSON."""

    fragments: tuple[OldFragment, ...]
    content: str = field(repr=False)

    @property
    def ids(self) -> BitMap:
        return BitMap(f.id for f in self.fragments)

    @property
    def rows(self) -> int:
        return sum(f.live_rows for f in self.fragments)


@dataclass(frozen=True)
class CompactionPlan:
    version: int
    tasks: tuple[CompactionTask, ...]


@dataclass(frozen=True)
class Rewritten:
    """What one task made of its fragments: files that belong to no version of the table yet.

    `survivors` is the roaring treemap of the addresses of the rows that were alive.
    """

    read_version: int
    old: tuple[OldFragment, ...]
    new: tuple[NewFragment, ...]
    survivors: bytes = field(repr=False)

    @property
    def old_ids(self) -> BitMap:
        return BitMap(f.id for f in self.old)


def plan_compaction(snapshot: Snapshot, options: CompactionOptions, *, deferred: bool = False) -> CompactionPlan:
    """What there is to compact, by pylance's rules. No task mixes fragments that different index segments cover; those
    that an index covers which pylance does not know are compacted only where its remapping is deferred."""
    with reading(f"what there is to compact in {snapshot.uri}"):
        plan = _native.Compaction.plan(snapshot.dataset, options.to_lance() | {"defer_index_remap": deferred})
        tasks: list[CompactionTask] = []
        for task in plan.tasks:
            old = tuple(_old_fragment(snapshot.manifest.fragments[f.id], f) for f in task.fragments)
            tasks.append(CompactionTask(old, task.json()))
    return CompactionPlan(snapshot.version, tuple(tasks))


def execute_compaction(pin: Pin, task: CompactionTask) -> Rewritten:
    """Write a task's rows anew. Two attempts write files of different names; those of a lost one are garbage that
    cleaning up old versions finds."""
    snapshot = pin.open()
    with answering(f"fragments {[f.id for f in task.fragments]} of {snapshot.uri}"):
        result = _native.CompactionTask.from_json(task.content).execute(snapshot.dataset)
    new = tuple(
        NewFragment(None, m.physical_rows, tuple(f.path for f in m.files), json.dumps(m.to_json()))
        for m in result.new_fragments
    )
    survivors = {f.id: _live_offsets(snapshot, f) for f in task.fragments}
    rewritten = Rewritten(pin.version, task.fragments, new, _serialize_treemap(survivors))
    written, alive = sum(f.physical_rows for f in new), sum(map(len, survivors.values()))
    if written != alive:
        discard(snapshot.store, rewritten)
        which = [f.id for f in task.fragments]
        raise BuildFailed(f"compaction of fragments {which} of {snapshot.uri} wrote {written} rows instead of {alive}")
    return rewritten


def still_valid(base: Snapshot, rewritten: Rewritten) -> bool:
    """Whether the old fragments are in `base` exactly as they were read: no row deleted, no column changed."""
    for old in rewritten.old:
        now = base.manifest.fragments.get(old.id)
        if now is None or _files(now) != old.files or now.deletion_file != old.deletion_file:
            return False
    return True


def assign_fragment_ids(base: Snapshot, rewritten: Iterable[Rewritten], spare: int = SPARE_IDS) -> list[Rewritten]:
    """Give the new fragments ids no fragment of `base` ever had, so that index files can name their rows.

    pylance cannot reserve ids. Leaving `spare` to twice as many free keeps clear of concurrent appends and compactions;
    should an id be taken all the same, the commit fails with a `RetryableConflict`.
    """
    highest = max([base.manifest.max_fragment_id, *base.manifest.fragments])
    following = highest + 1 + (spare + secrets.randbelow(spare) if spare else 0)
    assigned: list[Rewritten] = []
    for group in rewritten:
        new = tuple(dataclasses.replace(f, id=following + i) for i, f in enumerate(group.new))
        following += len(new)
        assigned.append(dataclasses.replace(group, new=new))
    return assigned


def group_moves(rewritten: Sequence[Rewritten]) -> bytes:
    """The moves of these groups as one version of a Fragment Reuse Index, a serialized `pb.FragmentReuseContent`."""
    groups: list[pb.ReuseGroup] = []
    for group in rewritten:
        old = [_digest(f.id, f.physical_rows, f.num_deleted_rows) for f in group.old]
        new = [_digest(f.id, f.physical_rows, 0) for f in group.new]
        groups.append(pb.ReuseGroup(changed_row_addrs=group.survivors, old_fragments=old, new_fragments=new))
    version = pb.ReuseVersion(dataset_version=max((g.read_version for g in rewritten), default=0), groups=groups)
    return pb.FragmentReuseContent(versions=[version]).SerializeToString()


def remappable_at_once(rewritten: Iterable[Rewritten], coverages: Sequence[BitMap | FrozenBitMap]) -> bool:
    """Whether `commit_remapped` can replace segments of these (effective) coverages: each must cover a group wholly or
    not at all. Otherwise the way is `commit_dropping`, followed by a commit of the segments."""
    return all(not (ids & c) or ids <= c for ids in (group.old_ids for group in rewritten) for c in coverages)


def commit_deferred(base: Snapshot, rewritten: Sequence[Rewritten]) -> Snapshot:
    """Exchange the fragments; the Fragment Reuse Index says where rows went, and index files stay as they are."""
    if base.manifest.has_stable_row_ids:
        raise UnsupportedTable(
            f"{base.uri} has stable row ids, and Lance cannot record moves in a Fragment Reuse Index there",
            "Remap its indices at once",
        )
    _check_valid(base, rewritten)
    # Compaction.commit moves the handle it is given on to the new version.
    handle = Snapshot.open(base.location, base.version).dataset
    results = [_native.RewriteResult.from_json(json.dumps(_result(base, group))) for group in rewritten]
    try:
        _native.Compaction.commit(handle, results, {"defer_index_remap": True})
    except (OSError, ValueError, RuntimeError) as error:
        raise_conflict(base, error)
    return Snapshot(base.location, handle)


def commit_dropping(base: Snapshot, rewritten: Sequence[Rewritten]) -> Snapshot:
    """Exchange the fragments; no index covers the new ones, but for those that go by stable row ids."""
    if base.manifest.has_stable_row_ids and any(f.id is None for group in rewritten for f in group.new):
        # Lance lets indices follow to the ids that it is given: without any, all of them to fragment 0.
        rewritten = assign_fragment_ids(base, rewritten)
    return commit_remapped(base, rewritten, ())


def commit_remapped(
    base: Snapshot, rewritten: Sequence[Rewritten], replacements: Sequence[tuple[IndexSegment, IndexSegment]]
) -> Snapshot:
    """Exchange the fragments and, in the same transaction, segments (old, new): a new one covers what the old one did,
    where the fragments went. Segments that are not replaced lose the fragments.

    Should another compaction replace an old segment in the instant of the commit, pylance leaves the new one out: it is
    not in the snapshot returned then, and its fragments are uncovered.
    """
    if base.manifest.reader_flags & FLAG_TAGGED_REUSE:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {base.uri} has the newer tagged form, beside which Lance remaps nothing",
            "Defer the remapping of its indices",
        )
    if replacements and any(f.id is None for group in rewritten for f in group.new):
        raise InvalidArgument("no index file can know rows of fragments that have no ids yet", "Assign them first")
    _check_valid(base, rewritten)
    present = {s.uuid for s in base.manifest.segments}
    for old, _ in replacements:
        if old.uuid not in present:
            raise RetryableConflict(
                f"segment {old.uuid} of index {old.name!r} of {base.uri} was replaced meanwhile", "Remap its successor"
            )
    base = _unstraddled(base, rewritten, {old.uuid for old, _ in replacements})
    groups = [
        lance.LanceOperation.RewriteGroup(_old_metadata(base, group), [f.to_lance() for f in group.new])
        for group in rewritten
    ]
    indices = [
        lance.LanceOperation.RewrittenIndex(old.uuid, new.uuid, new.type_url, new.details, new.index_version)
        for old, new in replacements
    ]
    return commit_operation(base, lance.LanceOperation.Rewrite(groups, indices))


def discard(store: Store, rewritten: Rewritten) -> None:
    """Delete the files written for a compaction that will not be committed."""
    discard_files(store, {path for fragment in rewritten.new for path in fragment.files}, rewritten.read_version)


def discard_files(store: Store, written: Set[str], read_version: int) -> None:
    """Delete data files written by a job that read `read_version`.

    A commit may have succeeded without its writer learning of it, so files that a later version names stay.
    """
    for version in manifest_paths(store):
        if version > read_version:
            for fragment in read_manifest(store, version).fragments.values():
                written = written - _files(fragment)
    for path in written:
        if store.exists(f"{DATA}/{path}"):
            store.delete(f"{DATA}/{path}")


def _old_fragment(fragment: Fragment, metadata: FragmentMetadata) -> OldFragment:
    sizes = [f.file_size_bytes for f in metadata.files]
    known = sum(size for size in sizes if size is not None) if all(sizes) else None
    return OldFragment(fragment.id, fragment.physical_rows, _files(fragment), fragment.deletion_file, known)


def _files(fragment: Fragment) -> frozenset[str]:
    return frozenset(fragment.field_files.values())


def _live_offsets(snapshot: Snapshot, fragment: OldFragment) -> BitMap:
    return BitMap(range(fragment.physical_rows)) - BitMap(snapshot.deleted_offsets(fragment.id))


def _serialize_treemap(offsets: Mapping[int, BitMap]) -> bytes:
    """Layout, little endian: u64 entries, then per entry u32 high word and a portable roaring bitmap."""
    filled = sorted((high, bitmap) for high, bitmap in offsets.items() if bitmap)
    parts = [struct.pack("<Q", len(filled))]
    for high, bitmap in filled:
        bitmap.run_optimize()
        parts += [struct.pack("<I", high), bitmap.serialize()]
    return b"".join(parts)


def _digest(fragment: int | None, physical_rows: int, num_deleted_rows: int) -> pb.FragmentDigest:
    if fragment is None:
        raise InvalidArgument("the new fragments have no ids yet", "Assign them first")
    return pb.FragmentDigest(id=fragment, physical_rows=physical_rows, num_deleted_rows=num_deleted_rows)


def _check_valid(base: Snapshot, rewritten: Sequence[Rewritten]) -> None:
    spoilt = [f.id for group in rewritten if not still_valid(base, group) for f in group.old]
    if spoilt:
        raise CommitConflict(
            f"fragments {spoilt} of {base.uri} were changed, deleted or compacted by others while they were rewritten",
            "Nothing was committed of them; run the compaction again",
        )


def _unstraddled(base: Snapshot, rewritten: Sequence[Rewritten], replaced: Set[str]) -> Snapshot:
    """A version in which no segment that stays covers part of a group.

    Indices by stable row id follow the rows to their new fragments by themselves, which Lance refuses for half a group.
    Planning keeps clear of that, but an index may have come since.
    """
    if not base.manifest.has_stable_row_ids:
        return base
    pruned: list[IndexSegment] = []
    for segment in base.manifest.user_segments:
        halves = [group.old_ids for group in rewritten if not remappable_at_once([group], [segment.fragments])]
        if halves and segment.uuid not in replaced:
            pruned.append(dataclasses.replace(segment, fragments=segment.fragments.difference(*halves)))
    return commit_segments(base, pruned, []) if pruned else base


def _old_metadata(base: Snapshot, group: Rewritten) -> list[FragmentMetadata]:
    fragments = [base.dataset.get_fragment(f.id) for f in group.old]
    return [f.metadata for f in fragments if f is not None]


def _result(base: Snapshot, group: Rewritten) -> dict[str, Any]:
    """A RewriteResult as pylance's JSON, as if it had been computed at `base`."""
    metrics = {
        "fragments_removed": len(group.old),
        "fragments_added": len(group.new),
        "files_removed": sum(len(f.files) + (f.deletion_file is not None) for f in group.old),
        "files_added": sum(len(f.files) for f in group.new),
    }
    return {
        "metrics": metrics,
        "new_fragments": [f.to_lance().to_json() for f in group.new],
        "read_version": base.version,
        "original_fragments": [m.to_json() for m in _old_metadata(base, group)],
        "row_addrs": list(group.survivors),
    }
