"""What there is to compact, by pylance's rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import lance.optimize
from lance.fragment import FragmentMetadata
from pyroaring import BitMap

from pennon.format.compaction.options import CompactionOptions
from pennon.format.fragments import DeletionFile, Fragment
from pennon.format.snapshot import Snapshot
from pennon.format.store import translate_read_errors

# The type stubs of pylance leave parts of this module out.
_native: Any = lance.optimize


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


def plan_compaction(snapshot: Snapshot, options: CompactionOptions, *, deferred: bool = False) -> CompactionPlan:
    """Plan the tasks. No task mixes fragments that different index segments cover; fragments that an index of a kind
    unknown to pylance covers are compacted only where remapping is deferred."""
    with translate_read_errors(f"what there is to compact in {snapshot.uri}"):
        plan = _native.Compaction.plan(snapshot.dataset, options.to_lance() | {"defer_index_remap": deferred})
        tasks: list[CompactionTask] = []
        for task in plan.tasks:
            old = tuple(_old_fragment(snapshot.manifest.fragments[f.id], f) for f in task.fragments)
            tasks.append(CompactionTask(old, task.json()))
    return CompactionPlan(snapshot.version, tuple(tasks))


def _old_fragment(fragment: Fragment, metadata: FragmentMetadata) -> OldFragment:
    sizes = [f.file_size_bytes for f in metadata.files]
    known = sum(size for size in sizes if size is not None) if all(sizes) else None
    return OldFragment(fragment.id, fragment.physical_rows, data_files(fragment), fragment.deletion_file, known)


def data_files(fragment: Fragment) -> frozenset[str]:
    """The data files that columns of a fragment are read from."""
    return frozenset(fragment.field_files.values())
