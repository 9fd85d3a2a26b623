"""Join the maps of a key that several sources have: by copying if their high halves differ, else row by row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pennon.format.row_set import RowSet
from pennon.index.bitmap.row_map import (
    CHUNK_IDS,
    Entries,
    Maps,
    Places,
    Remap,
    encode,
    from_row_set,
    join_entries,
    listed,
    remapped,
    to_row_set,
)

# Bytes of the maps of a group beyond which they stay compressed while they are joined.
LARGE_GROUP = 1 << 20


def join_maps(maps: Maps, starts: Places, where: str) -> Maps:
    """One map of each group of maps; group i is number `starts[i]` to `starts[i + 1] - 1`. Nothing is decoded if no
    high half is in two maps of a group. Raises DamagedFile if a map is invalid."""
    entries = Entries.of(maps, where)
    if len(maps) == len(starts) - 1:
        return maps
    joined = join_entries(entries, starts)
    return joined if joined is not None else _regrouped(maps, starts, None, where)


def remap_maps(maps: Maps, starts: Places, remap: Remap, where: str) -> Maps:
    """One map of each group of maps, with remapped ids, without rows that no longer exist."""
    return _regrouped(maps, starts, remap, where)


def concat_maps(parts: list[Maps]) -> Maps:
    """Maps of several arrays, one after another."""
    if len(parts) == 1:
        return parts[0]
    data = [part.data[part.offsets[0] : part.offsets[-1]] for part in parts]
    sizes = np.concatenate([np.zeros(1, dtype=np.int64), *(part.sizes for part in parts)])
    return Maps(np.concatenate([np.empty(0, dtype=np.uint8), *data]), np.cumsum(sizes))


def _regrouped(maps: Maps, starts: Places, remap: Remap | None, where: str) -> Maps:
    return concat_maps(list(_pieces(maps, starts, remap, where)) or [maps.slice(0, 0)])


def _pieces(maps: Maps, starts: Places, remap: Remap | None, where: str) -> Iterator[Maps]:
    """The groups one run after another: as many as can be decoded at once, or a single large one."""
    edges = maps.offsets[starts]
    first, count = 0, len(starts) - 1
    while first < count:
        # A byte of a map can represent many rows, so groups are also cut by their number of ids.
        last = max(int(np.searchsorted(edges, edges[first] + LARGE_GROUP, "right")) - 1, first + 1)
        own = starts[first : last + 1]
        some = maps.slice(int(own[0]), int(own[-1]))
        containers = listed(some, where)
        rows = int(containers.rows.sum())
        if rows > CHUNK_IDS and last > first + 1:
            last = first + max(1, (last - first) * CHUNK_IDS // (2 * rows))
            own = starts[first : last + 1]
            some = maps.slice(int(own[0]), int(own[-1]))
            containers = listed(some, where)
            rows = int(containers.rows.sum())
        if rows > CHUNK_IDS:
            for number in range(len(own) - 1):
                yield _one_large(maps.slice(int(own[number]), int(own[number + 1])), remap, where)
        else:
            ids = containers.decode(0, len(containers.rows))
            group = np.repeat(np.searchsorted(own - own[0], containers.owners, "right") - 1, containers.rows)
            if remap is not None:
                ids, kept = remap(ids)
                ids, group = ids[kept], group[kept]
            yield encode(ids, np.searchsorted(group, np.arange(len(own))))
        first = last


def _one_large(maps: Maps, remap: Remap | None, where: str) -> Maps:
    """The maps of one group, kept compressed."""
    rows: RowSet = to_row_set(maps, where)
    return Maps.of_bytes(from_row_set(rows if remap is None else remapped(rows, remap)))
