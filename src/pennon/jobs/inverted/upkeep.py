"""What inverted indices need beyond deltas and merges: on tables with stable row ids, a rewrite after rows are gone.

A dead document is left out by the deletion vector of its fragment. A compaction drops the vector with the row, and
stable row ids stay as they are, so that files keep the document: pylance counts it among the best and returns too few
rows. It is left out for good when its segment is merged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.segment_contents import read_contents
from pennon.format.snapshot import Snapshot
from pennon.index.inverted.files import PartitionFiles
from pennon.index.inverted.kind import INVERTED
from pennon.jobs.kinds import Upkeep


def upkeep_of(snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
    """A merge of all segments where one has documents whose rows no fragment has any more."""
    if not snapshot.manifest.has_stable_row_ids:
        return None
    if any(_moved(snapshot, segment) and _has_lost_rows(snapshot, segment) for segment in segments):
        return Upkeep("documents of rows that compaction has removed", rebuild=False)
    return None


def _moved(snapshot: Snapshot, segment: IndexSegment) -> bool:
    """Whether fragments that the segment was written from may be gone."""
    recorded = read_contents(snapshot.store, segment)
    if recorded is None:
        return True
    return not (segment.fragments <= recorded.fragments and BitMap(recorded.fragments) <= snapshot.manifest.live)


def _has_lost_rows(snapshot: Snapshot, segment: IndexSegment) -> bool:
    """One partition's row ids are held at a time."""
    try:
        for number in INVERTED.metadata_of(snapshot, segment).partitions:
            files = PartitionFiles(snapshot.store, segment.directory, number, segment.file_sizes)
            ids = files.read_docs().row_ids
            _, alive = snapshot.address_of_id.locate(ids)
            if not np.isin(ids[~alive], _deleted_ids(snapshot)).all():
                return True
    except (DamagedFile, UnsupportedTable):
        pass  # a merge would fail on it, and an audit finds it
    return False


def _deleted_ids(snapshot: Snapshot) -> Addresses:
    """Of rows that deletion vectors leave out."""
    deleted = [
        snapshot.row_ids(fragment)[snapshot.deleted_offsets(fragment)]
        for fragment, described in snapshot.manifest.fragments.items()
        if described.live_rows < described.physical_rows
    ]
    return np.concatenate([np.empty(0, dtype=np.uint64), *deleted])
