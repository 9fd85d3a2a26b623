"""What piles up beside a table: versions nobody looks at any more, and index files that no version names."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pennon.errors import DamagedFile
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
    """An index directory without an index, and the seconds since it was last written to where that is known."""

    directory: str
    age: float | None


def clean_up(snapshot: Snapshot, older_than_seconds: float, retain_versions: int | None = None) -> CleanedUp:
    """Delete versions of that age and the files only they name. The newest version stays, and so do tagged ones; files
    that no version names stay until they are a week old, since a running job may have written them."""
    newest = snapshot.latest().dataset
    stats = newest.cleanup_old_versions(
        older_than=timedelta(seconds=older_than_seconds),
        retain_versions=retain_versions,
        error_if_tagged_old_versions=False,
    )
    return CleanedUp(stats.old_versions, stats.bytes_removed)


def old_versions(snapshot: Snapshot, older_than_seconds: float) -> int:
    """How many versions of that age `clean_up` may delete; tagged ones are among them."""
    limit = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
    versions: list[dict[str, Any]] = snapshot.dataset.versions()  # pyright: ignore[reportAssignmentType]
    return sum(v["timestamp"].astimezone(UTC) < limit for v in versions if v["version"] != snapshot.version)


def orphans(snapshot: Snapshot) -> list[Orphan]:
    """Index directories that no version still present names: left by crashed jobs, or in use by running ones."""
    store = snapshot.store
    # Listed before the manifests are: what is committed in between is named by them.
    directories = {path.split("/")[1] for path in store.list(INDICES) if path.count("/") > 1}
    ages = {uuid: _age(store, f"{INDICES}/{uuid}") for uuid in sorted(directories) if _is_uuid(uuid)}
    # Branches keep their versions below tree/ and share the indices they started with; detached versions count too.
    manifests = [p for p in (*store.list(VERSIONS), *store.list("tree")) if p.endswith(".manifest")]
    named = {segment.uuid for path in manifests for segment in _segments(store, path)}
    return [Orphan(f"{INDICES}/{uuid}", age) for uuid, age in ages.items() if uuid not in named]


def delete_orphans(
    snapshot: Snapshot, older_than_seconds: float = ORPHAN_AGE, *, unknown_age: bool = False
) -> list[Orphan]:
    """Delete orphans of that age, and with `unknown_age` those of an object store, where no build may be running."""
    gone = [o for o in orphans(snapshot) if (unknown_age if o.age is None else o.age >= older_than_seconds)]
    for orphan in gone:
        snapshot.store.delete_directory(orphan.directory)
    return gone


def _age(store: Store, directory: str) -> float | None:
    """Seconds since anything below a directory was written; None on an object store, which does not tell."""
    root = store.location.local_root
    if root is None:
        return None
    try:
        written = [p.stat().st_mtime for p in (root / directory, *(root / directory).rglob("*"))]
    except FileNotFoundError:  # its job is over and has just removed it
        return 0.0
    return max(0.0, time.time() - max(written))


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
