"""Deletion vectors: the deleted rows of a fragment. Two encodings: an Arrow IPC file, or a roaring bitmap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import DamagedFile, DamagedTable, StoreUnavailable
from pennon.format.addresses import read_bitmap
from pennon.format.fragments import Fragment
from pennon.format.store import Store

REMEDY = "Restore the file, or an older version of the table"


def read_deleted_offsets(store: Store, fragment: Fragment) -> npt.NDArray[np.uint32]:
    """Ascending offsets of the deleted rows; empty for a fragment without deletions. `store` is that of the table that
    holds the deletion file; for a branch or a clone this may be its source."""
    deletion = fragment.deletion_file
    if deletion is None:
        return np.empty(0, dtype=np.uint32)
    suffix = "bin" if deletion.is_bitmap else "arrow"
    path = f"_deletions/{fragment.id}-{deletion.read_version}-{deletion.id}.{suffix}"
    try:
        content = store.read(path)
        if deletion.is_bitmap:
            bitmap = read_bitmap(content)
            found = len(bitmap)
            # A few bytes can encode many rows.
            offsets = np.array(bitmap if found == deletion.num_deleted_rows else (), dtype=np.uint32)
        else:
            column = pa.ipc.open_file(pa.py_buffer(content)).read_all().column(0)
            offsets = np.sort(column.to_numpy().astype(np.uint32))
            found = len(offsets)
    except StoreUnavailable:
        raise
    except (DamagedFile, ValueError, TypeError, pa.ArrowException, OSError, IndexError) as error:
        raise DamagedTable(f"deletion file {store.describe(path)} cannot be read: {error}", REMEDY) from error
    if found != deletion.num_deleted_rows:
        raise DamagedTable(
            f"deletion file {store.describe(path)} lists {found} rows, the manifest {deletion.num_deleted_rows}", REMEDY
        )
    if (offsets[1:] == offsets[:-1]).any() or (
        found and fragment.physical_rows and offsets[-1] >= fragment.physical_rows
    ):
        raise DamagedTable(f"deletion file {store.describe(path)} lists rows twice, or rows its fragment does not have")
    return offsets
