"""Deletion vectors: which rows of a fragment are gone. Two encodings: an Arrow IPC file, or a roaring bitmap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.manifest import Fragment
from pennon.format.store import Store


def read_deleted_offsets(store: Store, fragment: Fragment) -> npt.NDArray[np.uint32]:
    """Ascending offsets of the deleted rows; empty for a fragment without deletions."""
    deletion = fragment.deletion_file
    if deletion is None:
        return np.empty(0, dtype=np.uint32)
    suffix = "bin" if deletion.is_bitmap else "arrow"
    path = f"_deletions/{fragment.id}-{deletion.read_version}-{deletion.id}.{suffix}"
    content = store.read(path)
    try:
        if deletion.is_bitmap:
            offsets = np.array(BitMap.deserialize(content), dtype=np.uint32)
        else:
            column = pa.ipc.open_file(pa.py_buffer(content)).read_all().column(0)
            offsets = np.sort(column.to_numpy().astype(np.uint32))
    except (ValueError, pa.ArrowInvalid, IndexError) as error:
        raise DamagedFile(f"deletion file {store.describe(path)} cannot be read: {error}") from error
    if len(offsets) != deletion.num_deleted_rows:
        raise DamagedFile(
            f"deletion file {store.describe(path)} names {len(offsets)} rows, the manifest {deletion.num_deleted_rows}"
        )
    return offsets
