"""Rewriting the fragments of one task: new data files that belong to no version of the table yet."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance.optimize
from lance.fragment import FragmentMetadata
from pyroaring import BitMap

from pennon.errors import BuildFailed, InvalidArgument
from pennon.format.compaction.plan import CompactionTask, OldFragment
from pennon.format.failures import answering
from pennon.format.named_files import DATA, delete_unless_named
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import Store

# The type stubs of pylance leave parts of this module out.
_native: Any = lance.optimize


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


def execute_compaction(pin: Pin, task: CompactionTask) -> Rewritten:
    """Rewrite the rows of a task. Two attempts write files of different names; those of a lost attempt are deleted
    when old versions are cleaned up."""
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


def group_moves(rewritten: Sequence[Rewritten]) -> bytes:
    """The address map of these groups as one version of a Fragment Reuse Index, a serialized
    `pb.FragmentReuseContent`."""
    groups: list[pb.ReuseGroup] = []
    for group in rewritten:
        old = [_digest(f.id, f.physical_rows, f.num_deleted_rows) for f in group.old]
        new = [_digest(f.id, f.physical_rows, 0) for f in group.new]
        groups.append(pb.ReuseGroup(changed_row_addrs=group.survivors, old_fragments=old, new_fragments=new))
    version = pb.ReuseVersion(dataset_version=max((g.read_version for g in rewritten), default=0), groups=groups)
    return pb.FragmentReuseContent(versions=[version]).SerializeToString()


def discard(store: Store, rewritten: Rewritten) -> None:
    """Delete the files written for a compaction that will not be committed."""
    written = {f"{DATA}/{path}" for fragment in rewritten.new for path in fragment.files}
    delete_unless_named(store, written, rewritten.read_version)


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
