"""Data files that the tasks of a job have written, recorded so that they can be deleted if the job fails: the results
of its tasks are lost then."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from uuid import uuid4

from pennon.errors import PennonError
from pennon.format.named_files import delete_unless_named
from pennon.format.row_changes import NewFragment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

PREFIX = "written-"


def record_fragments(store: Store, directory: str, fragments: Iterable[NewFragment]) -> None:
    """Record the files of fragments that no version names yet."""
    files = sorted(path for fragment in fragments for path in fragment.files)
    if files:
        store.write(f"{directory}/{PREFIX}{uuid4()}.json", json.dumps(files).encode())


@contextmanager
def deleting_recorded(snapshot: Snapshot, directory: str) -> Generator[None]:
    """If the tasks within fail, or are interrupted, delete the data files that they have recorded in a directory."""
    try:
        yield
    except BaseException:
        _delete_recorded(snapshot, directory)
        raise


def _delete_recorded(snapshot: Snapshot, directory: str) -> None:
    store = snapshot.store
    written: set[str] = set()
    try:
        for path in store.list(directory):
            if path.rpartition("/")[2].startswith(PREFIX):
                written |= set(json.loads(store.read(path)))
        if written:
            delete_unless_named(store, written, snapshot.version)
    except (PennonError, OSError):
        return  # they are orphans, which `clean_orphans` deletes
