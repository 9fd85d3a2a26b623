"""The work of a merge, to decide where it runs.

In bytes that a zone map reads in the same time: measured on one core, a page of an index that is read alone takes as
long as 180 KB, one of many that are read in sequence as 55 KB, and a row that is fetched by its address as 32 KB.
"""

from __future__ import annotations

from pyroaring import BitMap

from pennon.format.snapshot import Snapshot
from pennon.jobs.merge.match import Matching
from pennon.jobs.merge.schema import MergeSchema
from pennon.jobs.merge.source import Staged
from pennon.jobs.shared.placement import MERGE_WEIGHT, Effort

ROWS_PER_PAGE = 4096
PAGE_BYTES, NEXT_PAGE_BYTES, ROW_BYTES, KEY_BYTES = 180_000, 55_000, 32_000, 40


def merge_effort(snapshot: Snapshot, staged: Staged, matching: Matching, schema: MergeSchema) -> Effort:
    """Of reading the source, matching it, and writing new rows."""
    work = MERGE_WEIGHT * staged.nbytes + KEY_BYTES * matching.rows_read
    if matching.looked_up:
        pages = -(-snapshot.manifest.rows_in(BitMap(matching.looked_up)) // ROWS_PER_PAGE)
        work += min(staged.rows * PAGE_BYTES, pages * NEXT_PAGE_BYTES)
    if schema.read:
        work += ROW_BYTES * staged.rows
    return Effort(snapshot.location, work)
