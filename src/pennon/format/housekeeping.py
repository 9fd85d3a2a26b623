"""What piles up beside a table: versions nobody looks at any more, and index files that no version names."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from stat import S_ISREG
from typing import Any
from uuid import UUID

from pennon.errors import DamagedFile
from pennon.format.failures import answering
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import VERSIONS, parse_manifest
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

INDICES = "_indices"
ORPHAN_AGE = 7 * 86_400.0


@dataclass(frozen=True)
class CleanedUp:
    versions: int
    bytes: int


@dataclass(frozen=True)
class Orphan:
    """An index directory without an index; the seconds since it was last written to, and its size, where the store
    tells them."""

    directory: str
    age: float | None
    size_bytes: int | None = None


def clean_up(snapshot: Snapshot, older_than_seconds: float, retain_versions: int | None = None) -> CleanedUp:
    """Delete versions of that age and the files only they name. The newest version stays, and so do tagged ones; files
    that no version names stay until they are a week old, since a running job may have written them."""
    newest = snapshot.latest().dataset
    with answering(f"old versions of {snapshot.uri}"):
        stats = newest.cleanup_old_versions(
            older_than=timedelta(seconds=older_than_seconds),
            retain_versions=retain_versions,
            error_if_tagged_old_versions=False,
        )
    return CleanedUp(stats.old_versions, stats.bytes_removed)


def old_versions(snapshot: Snapshot, older_than_seconds: float) -> int:
    """How many versions of that age `clean_up` may delete; tagged ones are among them."""
    limit = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
    with answering(f"the versions of {snapshot.uri}"):
        versions: list[dict[str, Any]] = snapshot.dataset.versions()  # pyright: ignore[reportAssignmentType]
    return sum(v["timestamp"].astimezone(UTC) < limit for v in versions if v["version"] != snapshot.version)


def orphans(snapshot: Snapshot) -> list[Orphan]:
    """Index directories that no version still present names: left by crashed jobs, or in use by running ones."""
    return _orphans(snapshot.store)[0]


def is_old(orphan: Orphan, older_than_seconds: float, *, unknown_age: bool = False) -> bool:
    """Whether no running job can be using it: nothing was written to it for so long. An age that the store does not
    tell counts as old only where the user vouches that no job is running."""
    return unknown_age if orphan.age is None else orphan.age >= older_than_seconds


def delete_orphans(
    snapshot: Snapshot, older_than_seconds: float = ORPHAN_AGE, *, unknown_age: bool = False
) -> list[Orphan]:
    """Delete orphans of that age, and with `unknown_age` those of an object store, where no build may be running."""
    store = snapshot.store
    found, seen = _orphans(store)
    old = [orphan for orphan in found if is_old(orphan, older_than_seconds, unknown_age=unknown_age)]
    # Reading many manifests takes a while. What was committed or written to meanwhile stays.
    since = {f"{INDICES}/{s.uuid}" for path in _manifests(store) - seen for s in _segments(store, path)} if old else ()
    gone: list[Orphan] = []
    for orphan in old:
        now = _described(store, orphan.directory)
        if orphan.directory not in since and is_old(now, older_than_seconds, unknown_age=unknown_age):
            store.delete_directory(orphan.directory)
            gone.append(orphan)
    return gone


def _orphans(store: Store) -> tuple[list[Orphan], set[str]]:
    """The orphans, and the manifests that were read to know them."""
    # Listed before the manifests are: what is committed in between is named by them.
    directories = sorted(store.directories(INDICES))
    found = {uuid: _described(store, f"{INDICES}/{uuid}") for uuid in directories if _is_uuid(uuid)}
    manifests = _manifests(store)
    named = {segment.uuid for path in manifests for segment in _segments(store, path)}
    return [orphan for uuid, orphan in found.items() if uuid not in named], manifests


def _manifests(store: Store) -> set[str]:
    """Branches keep their versions below tree/ and share the indices they started with; detached versions count too."""
    return {path for path in (*store.list(VERSIONS), *store.list("tree")) if path.endswith(".manifest")}


def _described(store: Store, directory: str) -> Orphan:
    """The age is that of the newest thing in it; an object store tells neither ages nor, cheaply, sizes."""
    root = store.location.local_root
    if root is None:
        return Orphan(directory, None)
    try:
        stats = [path.stat() for path in (root / directory, *(root / directory).rglob("*"))]
    except FileNotFoundError:  # its job is over and has just removed it
        return Orphan(directory, 0.0, 0)
    size = sum(each.st_size for each in stats if S_ISREG(each.st_mode))
    return Orphan(directory, max(0.0, time.time() - max(each.st_mtime for each in stats)), size)


def _segments(store: Store, manifest: str) -> tuple[IndexSegment, ...]:
    """Of a version; none where it was cleaned up a moment ago."""
    try:
        return parse_manifest(store.read(manifest), store.describe(manifest)).segments
    except DamagedFile:
        if store.exists(manifest):
            raise
        return ()


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
