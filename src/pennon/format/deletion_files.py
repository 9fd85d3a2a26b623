"""Write deletion vectors: files that list the deleted rows of a fragment, for a commit to name.

`_deletions/{fragment}-{read version}-{id}.arrow` is an Arrow IPC file of one column `row_id` (uint32, no NULLs), and
`.bin` is a roaring bitmap, which Lance uses from 5,000 rows on. The id is random, so that no two writers share a name.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap

from pennon.errors import PennonError, StoreUnavailable
from pennon.format.fragments import DeletionFile, Fragment
from pennon.format.requests import request_all
from pennon.format.row_set import bitmap_of, offsets_of
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

ARRAY_ROWS = 5000
SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])

# Fragment id -> offsets of rows that are still there and are to be deleted.
RowsToDelete = Mapping[int, BitMap]


@dataclass(frozen=True)
class WrittenDeletion:
    """The deleted rows of a fragment after a change: in a new file, or, without a file, all of its rows. `before` is
    the deletion file that it adds to; it is void once the fragment has another one."""

    fragment: int
    before: DeletionFile | None
    file: DeletionFile | None


def write_deletions(snapshot: Snapshot, rows: RowsToDelete) -> list[WrittenDeletion]:
    """Write the deletion vectors of fragments: the rows that are deleted in this version, and these. If one cannot be
    written, none is left, unless the store does not answer."""
    written: list[WrittenDeletion] = []

    def write(fragment: int) -> WrittenDeletion:
        deletion = _write_deletion(snapshot, fragment, rows[fragment])
        written.append(deletion)
        return deletion

    try:
        return request_all(snapshot.store, write, rows)
    except StoreUnavailable:
        raise
    except BaseException:
        discard_deletions(snapshot.store, written)
        raise


def _write_deletion(snapshot: Snapshot, fragment: int, rows: BitMap) -> WrittenDeletion:
    current = snapshot.manifest.fragments[fragment]
    everything = rows | bitmap_of(snapshot.deleted_offsets(fragment))
    if len(everything) == current.physical_rows:
        return WrittenDeletion(fragment, current.deletion_file, None)
    return WrittenDeletion(fragment, current.deletion_file, _write(snapshot, fragment, everything))


def write_full_deletion(snapshot: Snapshot, fragment: int) -> WrittenDeletion:
    """Write a deletion vector with every row of a fragment, which stays in the table."""
    current = snapshot.manifest.fragments[fragment]
    file = _write(snapshot, fragment, BitMap(range(current.physical_rows)))
    return WrittenDeletion(fragment, current.deletion_file, file)


def discard_deletions(store: Store, written: Iterable[WrittenDeletion]) -> None:
    """Delete files that no version names, as far as the store allows it."""
    paths = [deletion_path(each.fragment, each.file) for each in written if each.file is not None]
    with suppress(PennonError, OSError):
        request_all(store, store.delete, paths)


def deletion_path(fragment: int, file: DeletionFile) -> str:
    suffix = "bin" if file.is_bitmap else "arrow"
    return f"_deletions/{fragment}-{file.read_version}-{file.id}.{suffix}"


def still_live(base: Snapshot, read: Fragment, rows: BitMap) -> bool:
    """Whether rows that were read in an older version are all there in this one, with the values they had."""
    now = base.manifest.fragments.get(read.id)
    if now is None or now.field_files != read.field_files or now.physical_rows != read.physical_rows:
        return False
    if now.deletion_file == read.deletion_file:
        return True
    return not rows & bitmap_of(base.deleted_offsets(read.id))


def _write(snapshot: Snapshot, fragment: int, deleted: BitMap) -> DeletionFile:
    is_bitmap = len(deleted) >= ARRAY_ROWS
    # Lance reads the id as a signed number of 64 bits in places.
    file = DeletionFile(is_bitmap, snapshot.version, secrets.randbits(63), len(deleted), None)
    snapshot.store.write(deletion_path(fragment, file), _content(deleted, is_bitmap))
    return file


def _content(deleted: BitMap, is_bitmap: bool) -> bytes:
    if is_bitmap:
        return deleted.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch([pa.array(offsets_of(deleted))], schema=SCHEMA))
    return sink.getvalue().to_pybytes()
