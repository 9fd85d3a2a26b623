"""Clean-up of old versions and of orphans: files that no version names.

Only files with the names and in the places of Lance's writers are deleted: a directory below `_indices/` whose name is
a UUID, and a file directly in `data/` with a name that pylance gives to data files (two forms), or to an unfinished one
on a local file system. Directories of blobs next to data files stay. A shallow clone elsewhere may refer to the table's
files; neither this module nor pylance's own clean-up can detect that.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from stat import S_ISREG
from typing import Any
from uuid import UUID, uuid4

from pennon.display import DisplayedFields
from pennon.errors import StoreReadOnly, StoreUnavailable
from pennon.events import Event, EventKind, emit
from pennon.format.failures import answering
from pennon.format.index_metadata import INDICES
from pennon.format.modification_times import ModificationTimes, time_of_store
from pennon.format.named_files import DATA, Unnamed, unnamed
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

logger = logging.getLogger(__name__)

ORPHAN_AGE = 7 * 86_400.0
# 24 binary and 26 hexadecimal digits; a UUID, as in older versions; and the unfinished file of a killed writer.
DATA_FILE = re.compile(
    r"[01]{24}[0-9a-f]{26}\.lance|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.lance|\.tmp[A-Za-z0-9]{6}"
)


@dataclass(frozen=True)
class CleanedUp:
    versions: int
    bytes: int


class OrphanKind(StrEnum):
    INDEX = "index directory"
    DATA = "data file"


@dataclass(frozen=True)
class Orphan(DisplayedFields):
    """An index directory or a data file that no version names, with the seconds since the last write to it and its size
    if the store reports them."""

    path: str
    kind: OrphanKind
    age: float | None
    size_bytes: int | None = None


@dataclass(frozen=True)
class DeletedOrphans:
    deleted: tuple[Orphan, ...]
    kept: tuple[Orphan, ...]


def clean_up(snapshot: Snapshot, older_than_seconds: float, retain_versions: int | None = None) -> CleanedUp:
    """Delete versions of that age and the files that only they name. The newest and tagged versions stay. Files that no
    version names stay until they are a week old, since a running job may have written them."""
    newest = snapshot.latest().dataset
    with answering(f"old versions of {snapshot.uri}"):
        stats = newest.cleanup_old_versions(
            older_than=timedelta(seconds=older_than_seconds),
            retain_versions=retain_versions,
            error_if_tagged_old_versions=False,
        )
    counts = {"versions": stats.old_versions, "bytes": stats.bytes_removed}
    message = f"deleted {stats.old_versions} old versions of {snapshot.uri}"
    event = Event(EventKind.DELETION, snapshot.uri, message, (), snapshot.version, counts, {"reason": "old versions"})
    emit(logger, logging.INFO, event)
    return CleanedUp(stats.old_versions, stats.bytes_removed)


def old_versions(snapshot: Snapshot, older_than_seconds: float) -> int:
    """The number of versions of that age that `clean_up` may delete, including tagged ones."""
    limit = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
    with answering(f"the versions of {snapshot.uri}"):
        versions: list[dict[str, Any]] = snapshot.dataset.versions()  # pyright: ignore[reportAssignmentType]
    return sum(v["timestamp"].astimezone(UTC) < limit for v in versions if v["version"] != snapshot.version)


def orphans(snapshot: Snapshot, *, store_clock: bool = False) -> list[Orphan]:
    """Files that no existing version names: left by crashed jobs, or in use by running ones.

    With `store_clock`, ages are measured by the store's clock, which a decision to delete needs; this writes a
    temporary file. Otherwise nothing is written and ages are by this machine's clock.
    """
    return _list_orphans(snapshot, store_clock=store_clock).found


def is_old(orphan: Orphan, older_than_seconds: float, *, unknown_age: bool = False) -> bool:
    """Whether nothing was written to the orphan for `older_than_seconds`, so that no running job can be using it. An
    age that the store does not report counts as old only if `unknown_age` asserts that no job is running."""
    return unknown_age if orphan.age is None else orphan.age >= older_than_seconds


def delete_orphans(
    snapshot: Snapshot, older_than_seconds: float = ORPHAN_AGE, *, unknown_age: bool = False
) -> DeletedOrphans:
    """Delete orphans of that age, and with `unknown_age` those of an object store, while no build is running."""
    store, listing = snapshot.store, _list_orphans(snapshot, store_clock=True)
    old = {o.path for o in listing.found if is_old(o, older_than_seconds, unknown_age=unknown_age)}
    # Reading many manifests takes a while. Keep files that were committed or written to in the meantime.
    old = unnamed(snapshot, old, listing.unnamed.manifests).paths if old else old
    deleted: list[Orphan] = []
    kept: list[Orphan] = []
    for orphan in listing.found:
        now = _described(store, orphan.path, listing.clock) if orphan.path in old else None
        if now is not None and is_old(now, older_than_seconds, unknown_age=unknown_age):
            _delete(store, orphan)
            _log_deletion(snapshot, orphan)
            deleted.append(orphan)
        else:
            kept.append(orphan)
    return DeletedOrphans(tuple(deleted), tuple(kept))


@dataclass(frozen=True)
class _Clock:
    """The time now, None where it is unknown, and on an object store what lists the times of objects."""

    now: float | None
    times: ModificationTimes | None = None


@dataclass(frozen=True)
class _Listing:
    found: list[Orphan]
    unnamed: Unnamed
    clock: _Clock


def _list_orphans(snapshot: Snapshot, *, store_clock: bool) -> _Listing:
    store = snapshot.store
    # List files before manifests: the manifests then name every file that is committed in between.
    left = unnamed(snapshot, set(_candidates(store)))
    clock = (_store_clock(store) if store_clock else _machine_clock(store)) if left.paths else _Clock(None)
    described = (_described(store, path, clock) for path in sorted(left.paths))
    return _Listing([orphan for orphan in described if orphan is not None], left, clock)


def _candidates(store: Store) -> Iterator[str]:
    for name in store.directories(INDICES):
        if _is_uuid(name):
            yield f"{INDICES}/{name}"
    for name in _files(store, DATA):
        if DATA_FILE.fullmatch(name):
            yield f"{DATA}/{name}"


def _files(store: Store, directory: str) -> Iterator[str]:
    """Names of the files in a directory, without those in directories below it and without links."""
    root = store.location.local_root
    if root is None:
        for path in store.list(directory):
            if path.count("/") == 1:
                yield path.rpartition("/")[2]
    elif (root / directory).is_dir() and not (root / directory).is_symlink():
        with os.scandir(root / directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name


def _machine_clock(store: Store) -> _Clock:
    return _Clock(time.time(), None if store.is_local else ModificationTimes.of(store.location))


def _store_clock(store: Store) -> _Clock:
    """The time by the clock that sets the times of files, which may not be this machine's. It is unknown if nothing can
    be written, and on object stores that list no times.

    The file written to read the clock is named like those of a crashed job, so that a crash here leaves an ordinary
    orphan.
    """
    root = store.location.local_root
    if root is not None:
        return _Clock(_file_clock(root))
    times = ModificationTimes.of(store.location)
    return _Clock(time_of_store(store, times), times) if times is not None else _Clock(None)


def _file_clock(root: Path) -> float | None:
    """What is written to know it looks like the files of a crashed job, should this be its end."""
    directory = root / INDICES / str(uuid4())
    try:
        directory.mkdir(parents=True)
        (directory / "clock").touch()
        return (directory / "clock").stat().st_mtime
    except OSError:
        return None
    finally:
        with suppress(OSError):
            (directory / "clock").unlink(missing_ok=True)
            directory.rmdir()


def _described(store: Store, path: str, clock: _Clock) -> Orphan | None:
    """A directory is as old as its newest file. None if the job that wrote the file has just removed it."""
    root = store.location.local_root
    kind = OrphanKind.INDEX if path.startswith(f"{INDICES}/") else OrphanKind.DATA
    if root is None:
        return _described_objects(path, kind, clock)
    try:
        stats = [found.lstat() for found in (root / path, *(root / path).rglob("*"))]
    except FileNotFoundError:
        return None
    size = sum(each.st_size for each in stats if S_ISREG(each.st_mode))
    age = None if clock.now is None else max(0.0, clock.now - max(each.st_mtime for each in stats))
    return Orphan(path, kind, age, size)


def _described_objects(path: str, kind: OrphanKind, clock: _Clock) -> Orphan:
    """Age and size are unknown where the store lists no times."""
    objects = clock.times.below(path) if clock.times is not None and clock.now is not None else {}
    if clock.now is None or not objects:
        return Orphan(path, kind, None)
    newest = max(written.time for written in objects.values())
    return Orphan(path, kind, max(0.0, clock.now - newest), sum(written.size_bytes for written in objects.values()))


def _delete(store: Store, orphan: Orphan) -> None:
    """Raises `StoreReadOnly` if that fails, unless another process deleted the orphan."""
    problem = ""
    if orphan.kind is OrphanKind.INDEX:
        store.delete_directory(orphan.path)
    else:
        try:
            store.delete(orphan.path)
        except StoreUnavailable:
            raise
        except OSError as error:
            problem = f": {(str(error).splitlines() or [''])[0]}"
    root = store.location.local_root
    there = os.path.lexists(root / orphan.path) if root is not None else bool(problem) and store.exists(orphan.path)
    if there:
        raise StoreReadOnly(f"{store.describe(orphan.path)} cannot be deleted{problem}", "Check the permissions")


def _log_deletion(snapshot: Snapshot, orphan: Orphan) -> None:
    message = f"deleted {orphan.path} of {snapshot.uri}: no version names it"
    counts, details = {"bytes": orphan.size_bytes or 0}, {"path": orphan.path, "reason": "no version names it"}
    event = Event(EventKind.DELETION, snapshot.uri, message, (), snapshot.version, counts, details)
    emit(logger, logging.INFO, event)


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
