"""When segments were added and removed, by the newest manifests that still exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from pyroaring import FrozenBitMap

from pennon.errors import DamagedFile, TableNotFound
from pennon.format.index_metadata import FRAGMENT_REUSE_NAME, IndexSegment
from pennon.format.manifest import Manifest, manifest_paths, read_manifest
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import trusted_coverage
from pennon.wording import plural

MAX_VERSIONS = 50
# Manifests of a table with many fragments take long to read, so fewer are read.
MAX_FRAGMENTS = 200_000


@dataclass(frozen=True)
class Event:
    """What a version changed in one index. `when` is known where the version added a segment."""

    version: int
    when: datetime | None
    index: str
    what: str


@dataclass(frozen=True)
class History:
    """Newest first. `first_coverage` is what each segment covered in the oldest version read that has it."""

    events: tuple[Event, ...]
    oldest: int
    versions_read: int
    versions_there: int
    first_coverage: Mapping[str, FrozenBitMap] = field(repr=False)


def read_history(snapshot: Snapshot) -> History:
    versions = sorted((v for v in manifest_paths(snapshot.store) if v < snapshot.version), reverse=True)
    newer, budget, read = snapshot.manifest, MAX_FRAGMENTS, 1
    coverage = _coverage(newer)
    events: list[Event] = []
    for version in versions[: MAX_VERSIONS - 1]:
        budget -= len(newer.fragments)
        if budget < 0:
            break
        with suppress(TableNotFound, DamagedFile):  # cleaned up a moment ago
            older = read_manifest(snapshot.store, version)
            events += _events(older, newer)
            coverage |= _coverage(older)
            newer, read = older, read + 1
    if newer.version == 1 or not versions:
        events += _events(None, newer)
    return History(tuple(events), newer.version, read, len(versions) + 1, coverage)


def _coverage(manifest: Manifest) -> dict[str, FrozenBitMap]:
    return {segment.uuid: trusted_coverage(segment) for segment in manifest.segments}


def _events(older: Manifest | None, newer: Manifest) -> Iterator[Event]:
    before, after = _by_name(older.segments if older else ()), _by_name(newer.segments)
    for name in {**before, **after}:
        old, new = before.get(name, {}), after.get(name, {})
        came = [segment for uuid, segment in new.items() if uuid not in old]
        what = _reuse_event(old, new) if name == FRAGMENT_REUSE_NAME else _event(old, new, came)
        if what:
            when = max((s.created_at for s in came if s.created_at), default=None)
            shown = "Fragment Reuse Index" if name == FRAGMENT_REUSE_NAME else name
            yield Event(newer.version, when, shown, what)


def _by_name(segments: tuple[IndexSegment, ...]) -> dict[str, dict[str, IndexSegment]]:
    named: dict[str, dict[str, IndexSegment]] = {}
    for segment in segments:
        named.setdefault(segment.name, {})[segment.uuid] = segment
    return named


def _event(old: Mapping[str, IndexSegment], new: Mapping[str, IndexSegment], came: list[IndexSegment]) -> str | None:
    gone = len(old.keys() - new.keys())
    over = plural(len(FrozenBitMap().union(*map(trusted_coverage, came))), "fragment")
    made = f"{plural(len(came), 'segment')} over {over}"
    if not new:
        return f"dropped, with {plural(gone, 'segment')}"
    if not old:
        return f"created: {made}"
    if came and gone:
        return f"{plural(gone, 'segment')} replaced by {made}"
    if came:
        return f"added {made}"
    if gone:
        return f"{plural(gone, 'segment')} removed"
    changed = [uuid for uuid in new if trusted_coverage(new[uuid]) != trusted_coverage(old[uuid])]
    if not changed:
        return None
    counts = [sum(len(trusted_coverage(side[uuid])) for uuid in changed) for side in (old, new)]
    return f"coverage of {plural(len(changed), 'segment')} went from {counts[0]:,} to {plural(counts[1], 'fragment')}"


def _reuse_event(old: Mapping[str, IndexSegment], new: Mapping[str, IndexSegment]) -> str | None:
    if not old or not new:
        return "begun by a deferred compaction" if new else "removed: no file needs its moves"
    same = [(s.uuid, s.details) for s in old.values()] == [(s.uuid, s.details) for s in new.values()]
    return None if same else "moves added or trimmed"
