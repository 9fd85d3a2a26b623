"""Finds equal rows of two lists of columns, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.arrays import Int64s

MOST_PAIRS = 1 << 17

_Mask = npt.NDArray[np.bool_]


class KeyTable:
    """Key rows, prepared to find the rows that equal them. Columns are in the form of `KeyColumn.comparable`."""

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        self._distinct = [_Distinct(column.drop_null()) for column in keys]
        self._combinations: list[Int64s] = []
        codes, valid = self._codes(keys, learn=True)
        present = np.flatnonzero(valid)
        self._order = present[np.argsort(codes[present], kind="stable")]
        self._codes_in_order = codes[self._order]

    def pairs(self, rows: Sequence[pa.Array], most: int = MOST_PAIRS) -> Iterator[tuple[Int64s, Int64s]]:
        """The positions of equal keys and rows, by key and then by row, about `most` at once: keys that repeat may meet
        rows that repeat. A row with NULL equals none."""
        codes, valid = self._codes(rows, learn=False)
        at = np.flatnonzero(valid)
        starts = self._codes_in_order.searchsorted(codes[at], "left")
        counts = self._codes_in_order.searchsorted(codes[at], "right") - starts
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        cuts = ends.searchsorted(np.arange(most, total, most), "left") + 1
        for low, high in pairwise([0, *np.unique(cuts).tolist(), len(at)]):
            some = counts[low:high]
            found = np.repeat(at[low:high], some)
            if len(found):
                within = np.arange(len(found)) - np.repeat(np.cumsum(some) - some, some)
                keys = self._order[np.repeat(starts[low:high], some) + within]
                order = np.lexsort((found, keys))
                yield keys[order], found[order]

    def _codes(self, columns: Sequence[pa.Array], *, learn: bool) -> tuple[Int64s, _Mask]:
        """A number for each row, equal only for equal rows, and which rows have one. The numbers of combined columns
        are counted again after each column, so that they stay below the number of keys."""
        codes = np.zeros(len(columns[0]), dtype=np.int64)
        valid = np.ones(len(columns[0]), dtype=np.bool_)
        for number, (column, distinct) in enumerate(zip(columns, self._distinct, strict=True)):
            places = distinct.places(column)
            valid &= places >= 0
            codes = codes * max(1, len(distinct)) + places
            if number:
                if learn:
                    self._combinations.append(_sorted_once(codes[valid]))
                known = self._combinations[number - 1]
                at = known.searchsorted(codes)
                valid &= known[np.minimum(at, len(known) - 1)] == codes if len(known) else False
                codes = at
        return codes, valid


class _Distinct:
    """The different values of a column. Machine words are sorted; for others, Arrow hashes them at every call."""

    def __init__(self, values: pa.Array) -> None:
        words = _words(values)
        self._words = None if words is None else _sorted_once(words)
        self._values = pc.unique(values) if self._words is None else pa.nulls(0)

    def __len__(self) -> int:
        return len(self._values) if self._words is None else len(self._words)

    def places(self, column: pa.Array) -> Int64s:
        """The number of each value among them; -1 for NULL and for those that are not."""
        words = self._words
        if words is None:
            found = pc.index_in(column, value_set=self._values, skip_nulls=True)
            return pc.fill_null(found, -1).to_numpy().astype(np.int64)
        if not len(words):
            return np.full(len(column), -1)
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else True
        given = _words(pc.fill_null(column, pa.scalar(0, column.type)) if column.null_count else column)
        assert given is not None
        at = np.minimum(words.searchsorted(given), len(words) - 1)
        return np.where(valid & (words[at] == given), at, -1)


def _sorted_once(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Ascending, each once; numpy's `unique` hashes first, which is several times slower."""
    ascending = np.sort(words)
    return ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])] if len(words) else ascending


def _words(values: pa.Array) -> npt.NDArray[Any] | None:
    """Values that are machine words, as numbers."""
    type_ = values.type
    if pa.types.is_integer(type_):
        return values.to_numpy()
    if pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        return values.view(pa.int64()).to_numpy()
    return values.view(pa.int32()).to_numpy() if pa.types.is_date32(type_) else None
