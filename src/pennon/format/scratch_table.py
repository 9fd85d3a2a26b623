"""Tables of a job, in a directory of this machine that the job deletes."""

from __future__ import annotations

import lance
import pyarrow as pa

from pennon.format.snapshot import Snapshot
from pennon.format.store import Location


def write_scratch_table(path: str, rows: pa.Table) -> Snapshot:
    """A new table of some rows."""
    lance.write_dataset(rows, path)
    return Snapshot.open(Location.of(path))
