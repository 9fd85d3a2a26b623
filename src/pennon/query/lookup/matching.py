"""Finds equal rows of two lists of columns, many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.arrays import Int64s

_Mask = npt.NDArray[np.bool_]


class KeyTable:
    """Key rows, prepared to find the rows that equal them. Columns are in the form of `KeyColumn.comparable`."""

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        self._distinct = [pc.unique(column.drop_null()) for column in keys]
        self._combinations: list[Int64s] = []
        codes, valid = self._codes(keys, learn=True)
        present = np.flatnonzero(valid)
        self._order = present[np.argsort(codes[present], kind="stable")]
        self._codes_in_order = codes[self._order]

    def pairs(self, rows: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
        """The positions of equal keys and rows, by key and then by row. A row with NULL equals none."""
        codes, valid = self._codes(rows, learn=False)
        at = np.flatnonzero(valid)
        starts = self._codes_in_order.searchsorted(codes[at], "left")
        counts = self._codes_in_order.searchsorted(codes[at], "right") - starts
        found = np.repeat(at, counts)
        within = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = self._order[np.repeat(starts, counts) + within]
        order = np.lexsort((found, keys))
        return keys[order], found[order]

    def _codes(self, columns: Sequence[pa.Array], *, learn: bool) -> tuple[Int64s, _Mask]:
        """A number for each row, equal only for equal rows, and which rows have one. The numbers of combined columns
        are counted again after each column, so that they stay below the number of keys."""
        codes = np.zeros(len(columns[0]), dtype=np.int64)
        valid = np.ones(len(columns[0]), dtype=np.bool_)
        for number, (column, distinct) in enumerate(zip(columns, self._distinct, strict=True)):
            found = pc.fill_null(pc.index_in(column, value_set=distinct, skip_nulls=True), -1)
            places = found.to_numpy().astype(np.int64)
            valid &= places >= 0
            codes = codes * max(1, len(distinct)) + places
            if number:
                if learn:
                    self._combinations.append(np.unique(codes[valid]))
                known = self._combinations[number - 1]
                at = known.searchsorted(codes)
                valid &= known[np.minimum(at, len(known) - 1)] == codes if len(known) else False
                codes = at
        return codes, valid
