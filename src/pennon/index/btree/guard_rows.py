"""A guard row in every range of a range-partitioned tree.

pylance breaks a tree when all rows of a range are deleted and the fragments compacted with an immediate remap: it
lists the range with 0 pages, and from then on every use of the index fails. A row that no compaction can remove keeps
each range from becoming empty. Its address is in the tombstone fragment, which is in no table and no coverage, so
readers drop it like any row of a removed fragment, and a remap leaves it unchanged because its address is in no address
map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pennon.index.btree.pages import Run

TOMBSTONE_FRAGMENT = 0xFFFF_FFFF
GUARD_ROWS = 1  # a range
SENTINEL_ID = np.uint64(TOMBSTONE_FRAGMENT << 32)


def guard(runs: Iterable[Run]) -> Iterator[Run]:
    """The rows of a range, preceded by a guard row that repeats the first value."""
    guarded = False
    for run in runs:
        if not guarded and run.rows:
            yield _sentinel(run)
            guarded = True
        yield run


def _sentinel(first: Run) -> Run:
    ids = np.array([SENTINEL_ID], dtype=np.uint64)
    none = ids[:0]
    if len(first.null_ids):
        return Run(ids, first.values[:0], none)
    return Run(none, first.values[:1], ids)
