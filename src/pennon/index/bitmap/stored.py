"""The sorted keys and maps of an existing file, under the current ids of their rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pennon.index.bitmap.files import BitmapFile
from pennon.index.bitmap.joining import concat_maps, remap_maps
from pennon.index.bitmap.keyed import CHUNK_BYTES, Keyed
from pennon.index.bitmap.row_map import Maps, Places, Remap
from pennon.index.value_order import exchange_type, order_of


class StoredSource:
    """A file as a source of a merge; `remap` returns the new ids of rows; None if all stay as they are."""

    def __init__(self, file: BitmapFile, remap: Remap | None = None) -> None:
        self._file, self._remap = file, remap
        keys = file.read_keys()
        keys = keys.cast(exchange_type(keys.type))
        present = keys.is_valid().to_numpy(zero_copy_only=False)
        values, nulls, rows = keys.drop_null(), np.flatnonzero(~present), np.flatnonzero(present)
        order = order_of(values)
        if order is not None:
            values, rows = values.take(pa.array(order)), rows[order]
        self.keys = pa.concat_arrays([pa.nulls(len(nulls), keys.type), values])
        self._rows: Places = np.concatenate([nulls, rows])
        self._last: tuple[int, Maps] | None = None

    @property
    def nbytes(self) -> int:
        return self._file.nbytes

    def read(self, start: int, stop: int) -> Maps:
        maps = self._stored(self._rows[start:stop])
        if self._remap is None:
            return maps
        return remap_maps(maps, np.arange(len(maps) + 1), self._remap, self._file.where)

    def _stored(self, wanted: Places) -> Maps:
        """The maps of some rows of the file, in any order."""
        by_row = np.argsort(wanted, kind="stable")
        rows = wanted[by_row]
        numbers = self._file.pages.of_rows(rows)
        parts: list[Maps] = []
        for page in np.unique(numbers).tolist():
            first = int(self._file.pages.starts[page])
            parts.append(self._page(page).take(rows[numbers == page] - first))
        maps = concat_maps(parts)
        if bool((by_row == np.arange(len(by_row))).all()):
            return maps
        back = np.empty(len(by_row), dtype=np.int64)
        back[by_row] = np.arange(len(by_row))
        return maps.take(back)

    def _page(self, page: int) -> Maps:
        """Keeps the last page, which neighboring ranges of keys share."""
        if self._last is None or self._last[0] != page:
            self._last = page, self._file.read_page(page)
        return self._last[1]


def read_in_order(file: BitmapFile) -> Iterator[Keyed]:
    """All of a file that Pennon wrote, whose keys are sorted, a bounded number of bytes at a time."""
    keys = file.read_keys()
    parts: list[Maps] = []
    start, size = 0, 0
    for page, stop in enumerate(file.pages.stops.tolist()):
        parts.append(file.read_page(page))
        size += int(parts[-1].sizes.sum())
        if size >= CHUNK_BYTES or stop == file.rows:
            yield Keyed(keys.slice(start, stop - start), concat_maps(parts))
            parts, start, size = [], stop, 0
