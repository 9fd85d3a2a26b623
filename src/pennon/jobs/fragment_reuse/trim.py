"""Trim the Fragment Reuse Index: compactions that no index file needs any more leave it.

plan, by the ids in the files -> write the entry with the rest -> commit; again if the indices changed in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyroaring import BitMap, FrozenBitMap

from pennon.display import Displayed
from pennon.engine import Engine
from pennon.errors import CommitConflict, UnsupportedTable
from pennon.format.commit import RetryableConflict
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.fragment_reuse.writing import write_kept_versions
from pennon.jobs.fragment_reuse.state import ReuseState, read_state
from pennon.jobs.shared.changes import SegmentChange
from pennon.jobs.shared.cleanup import delete_if_refused
from pennon.jobs.shared.commit import commit_change
from pennon.jobs.shared.retry import attempts
from pennon.wording import plural


@dataclass(frozen=True)
class TrimPlan(Displayed):
    """The compactions in the Fragment Reuse Index by the version they read: those that no index file needs, and the
    others."""

    uri: str
    version: int
    removable: tuple[int, ...]
    needed: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "version": self.version,
            "removable": list(self.removable),
            "needed": list(self.needed),
        }

    def __str__(self) -> str:
        needed = f", {len(self.needed)} needed by index files" if self.needed else ""
        which = f" (of version {', '.join(map(str, self.removable))})" if self.removable else ""
        return f"{plural(len(self.removable), 'compaction')} to remove{which}{needed}"


def plan_trim(engine: Engine, snapshot: Snapshot) -> TrimPlan:
    """Which versions `trim` would remove. Executors read the ids in the files.

    Raises:
        UnsupportedTable: the Fragment Reuse Index has the tagged form.
    """
    reuse = read_fragment_reuse(snapshot)
    if reuse is None:
        return TrimPlan(snapshot.uri, snapshot.version, (), ())
    _check_untagged(snapshot, reuse)
    return _plan_by(snapshot, read_state(engine, snapshot))


def _plan_by(snapshot: Snapshot, state: ReuseState | None) -> TrimPlan:
    recorded = list(zip(state.versions, state.needed, strict=True)) if state else []
    return TrimPlan(
        snapshot.uri,
        snapshot.version,
        tuple(version for version, needed in recorded if not needed),
        tuple(version for version, needed in recorded if needed),
    )


def may_trim(snapshot: Snapshot, reuse: FragmentReuse) -> bool:
    """Whether, by the metadata, some version may not be needed any more, so that reading the files is worthwhile."""
    everything = BitMap(reuse.old_fragments) | reuse.new_fragments
    concerned = [s for s in snapshot.manifest.user_segments if BitMap(s.fragments) & everything]
    oldest = min((segment.dataset_version for segment in concerned), default=snapshot.version)
    return any(version.dataset_version < oldest for version in reuse.versions)


def trim(engine: Engine, snapshot: Snapshot) -> tuple[Snapshot, TrimPlan]:
    """Remove the versions that no file needs. Returns which those were."""
    for attempt in attempts(snapshot, "trim the Fragment Reuse Index", retried=(RetryableConflict, FilesChanged)):
        with attempt as base:
            reuse = read_fragment_reuse(base)
            if reuse is None:
                return base, _plan_by(base, None)
            _check_untagged(base, reuse)
            state = read_state(engine, base)
            plan = _plan_by(base, state)
            if state is None or not plan.removable:
                return base, plan
            entry = write_kept_versions(base, reuse, state.needed)
            with delete_if_refused(base, [entry] if entry else []):
                return commit_change(base, TrimFragmentReuse(base, reuse, state.needed, entry)), plan
    raise AssertionError("unreachable: the last attempt returns or raises")


@dataclass(frozen=True)
class TrimFragmentReuse:
    """The Fragment Reuse Index as `entry` in place of `reuse`, without the versions that no file of `seen` needs."""

    seen: Snapshot
    reuse: FragmentReuse
    needed: tuple[bool, ...]
    entry: IndexSegment | None

    def on(self, base: Snapshot) -> SegmentChange:
        old = base.manifest.reuse_segment
        known = {segment.uuid for segment in self.seen.manifest.user_segments}
        if old is None or old.uuid != self.reuse.uuid or any(s.uuid not in known for s in base.manifest.user_segments):
            raise FilesChanged(f"the indices of {base.uri} changed while their files were read", "Try again")
        versions = zip(self.reuse.versions, self.needed, strict=True)
        gone = BitMap().union(*(version.old_fragments for version, needed in versions if not needed))
        # Bitmaps that still list the removed fragments are updated in the same commit.
        advanced = [
            replace(segment, fragments=FrozenBitMap(effective_coverage(segment, base, self.reuse)))
            for segment in base.manifest.user_segments
            if BitMap(segment.fragments) & gone
        ]
        return SegmentChange((*advanced, *([self.entry] if self.entry else [])), (old,))

    def __str__(self) -> str:
        return f"remove {plural(self.needed.count(False), 'compaction')} from the Fragment Reuse Index"


class FilesChanged(CommitConflict):
    """The ids that were read are not those of the newest version: they have to be read again."""


def _check_untagged(snapshot: Snapshot, reuse: FragmentReuse) -> None:
    if reuse.tagged:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {snapshot.uri} has the newer tagged form, which Pennon reads but does not"
            " write",
            "Use the tool that wrote it",
        )
