"""Which files of a table its versions name, and which none of them does."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass

from pennon.errors import DamagedFile, DamagedTable, PennonError, StoreUnavailable, UnsupportedTable
from pennon.events import Event, EventKind, emit
from pennon.format.index_metadata import INDICES, segment_directory, segments_from_proto
from pennon.format.manifest import READER_FLAGS, VERSIONS, Manifest, manifest_paths, manifest_protos, read_manifest
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store, translate_read_errors

logger = logging.getLogger(__name__)

DATA = "data"
# Branches keep their versions below it, and share the files they started with.
BRANCHES = "tree"


@dataclass(frozen=True)
class Unnamed:
    """Paths that no version names, and the manifests that were read to know them."""

    paths: set[str]
    manifests: set[str]


def unnamed(snapshot: Snapshot, paths: set[str], read: set[str] | None = None) -> Unnamed:
    """Those of `paths` (index directories and data files, listed before this is called) that no version names: of the
    table, of its branches, detached, the newest, or the one that is open. Manifests in `read` are not read again.

    A store that lists a manifest and denies it, or does not list the newest, raises `DamagedTable`: no path is known to
    be without a name then.
    """
    store = snapshot.store
    left = set(paths)
    left.difference_update(_named_by(snapshot.manifest))
    newest = _newest(snapshot)
    left.difference_update(_named_by(newest.manifest))
    manifests = _manifests(store)
    if max(manifest_paths(store), default=0) < newest.version:
        raise DamagedTable(
            f"the store does not list version {newest.version} of {snapshot.uri}, which is its newest",
            "Nothing was deleted; try again once the listing is complete",
        )
    vanished: set[str] = set()
    for path in sorted(manifests - (read or set())):
        try:
            content = store.read(path)
        except DamagedFile:
            vanished.add(path)
            continue
        proto, indices = manifest_protos(content, store.describe(path))
        _refuse_unknown(proto, path, store)
        left.difference_update(_named_in(proto, indices))
    _refuse_denied(store, vanished)
    return Unnamed(left, manifests)


def delete_unless_named(store: Store, written: Set[str], read_version: int, indices: Collection[str] = ()) -> None:
    """Delete index directories and data files written by a job that read `read_version` and did not commit them.

    A commit may have succeeded although its writer got an error, so what a later version names is kept. All of it is
    kept where a later version cannot be read: `orphans` finds it later. `indices` are those that it was written for.
    """
    named = _named_since(store, read_version)
    if named is None:
        return
    if written - named:
        log_deletion(store, written - named, "not committed", indices, version=read_version)
    for path in written - named:
        if path.startswith(f"{INDICES}/"):
            store.delete_directory(path)
        elif store.exists(path):
            store.delete(path)


def log_deletion(
    store: Store,
    paths: Collection[str],
    reason: str,
    indices: Collection[str] = (),
    *,
    version: int | None = None,
    level: int = logging.WARNING,
) -> None:
    """One record for files and directories that a job deletes."""
    table, listed = store.location.shown, ", ".join(sorted(paths))
    message = f"deleting {listed} of {table}: {reason}"
    counts, details = {"paths": len(paths)}, {"path": listed, "reason": reason}
    emit(logger, level, Event(EventKind.DELETION, table, message, tuple(sorted(indices)), version, counts, details))


def _named_since(store: Store, read_version: int) -> set[str] | None:
    """What the versions after `read_version` name; None where one of them is gone or cannot be read."""
    try:
        later = sorted(version for version in manifest_paths(store) if version > read_version)
        if later and later != [*range(read_version + 1, later[-1] + 1)]:
            return None
        return {path for version in later for path in _named_by(read_manifest(store, version))}
    except (PennonError, OSError):
        return None


def _newest(snapshot: Snapshot) -> Snapshot:
    what = f"the newest version of {snapshot.uri}"
    try:
        with translate_read_errors(what):
            return snapshot.latest()
    except StoreUnavailable:
        raise
    except PennonError as error:
        raise DamagedTable(
            f"{what} cannot be read: {error.problem}", "Nothing was deleted; restore its files"
        ) from error


def _manifests(store: Store) -> set[str]:
    """Of versions, branches and detached versions. A version that a catalog outside the store keeps may have a suffix
    to its name until its commit is complete."""
    listed = (*store.list(VERSIONS), *store.list(BRANCHES))
    return {path for path in listed if ".manifest" in path.rpartition("/")[2]}


def _refuse_denied(store: Store, vanished: set[str]) -> None:
    """A manifest that is gone from the listing, too, was cleaned up a moment ago."""
    denied = sorted(vanished & _manifests(store)) if vanished else []
    if denied:
        raise DamagedTable(
            f"the store lists {store.describe(denied[0])}, but it cannot be read",
            "Nothing was deleted, because what that version names is not known; restore the file",
        )


def _named_by(manifest: Manifest) -> Iterator[str]:
    for segment in manifest.segments:
        yield segment_directory(segment.uuid)
    for fragment in manifest.fragments.values():
        for path in fragment.field_files.values():
            yield f"{DATA}/{path}"


def _named_in(proto: pb.Manifest, indices: pb.IndexSection) -> Iterator[str]:
    """Also data files of which no column is in use any more. Files of another base path count like the table's own."""
    for segment in segments_from_proto(indices):
        yield segment_directory(segment.uuid)
    for fragment in proto.fragments:
        for file in fragment.files:
            yield f"{DATA}/{file.path}"
        if fragment.HasField("external_row_ids"):
            yield f"{DATA}/{fragment.external_row_ids.path}"


def _refuse_unknown(proto: pb.Manifest, path: str, store: Store) -> None:
    if unknown := proto.writer_feature_flags & ~READER_FLAGS:
        raise UnsupportedTable(
            f"{store.describe(path)} needs writer features {unknown:#x}, with which it may name files that Pennon does"
            " not know of",
            "Upgrade Pennon, or clean up with the tool that wrote the table",
        )
    if proto.branch and path.startswith(f"{VERSIONS}/"):
        raise UnsupportedTable(
            f"{store.location.shown} is the branch {proto.branch!r} of a table, and branches made of it, which may"
            " share its files, are kept elsewhere",
            "Clean up the table itself, whose branches are all below it",
        )
