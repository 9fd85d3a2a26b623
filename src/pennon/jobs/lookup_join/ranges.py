"""Ranges of keys, so that a task looks up neighboring values, which an index has on the same pages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.index.arrays import Int64s
from pennon.index.kind import SpreadSegment
from pennon.index.value_order import argsort, places
from pennon.query.catalog import Catalog
from pennon.query.lookup.find import Lookup

# Values from which a cut is chosen, for each.
PER_CUT = 16
SEED = 7


def choose_cuts(catalog: Catalog, lookup: Lookup, covered: BitMap, parts: int) -> tuple[int, pa.Array]:
    """The key column to cut, and values that cut its rows into about equal parts: of an index that is sorted by value,
    or else of a sample of the rows."""
    wanted = parts * PER_CUT
    for number, key in enumerate(lookup.keys):
        segments = [catalog.open(usable) for usable in lookup.exact_segments(number)]
        pages = [segment.spread(wanted) for segment in segments if isinstance(segment, SpreadSegment)]
        if pages and sum(map(len, pages)) >= parts:
            return number, _cuts(pa.concat_arrays([key.canonical(values) for values in pages]), parts)
    number = next((number for number, _ in enumerate(lookup.keys) if lookup.exact_segments(number)), 0)
    key = lookup.keys[number]
    sample = catalog.snapshot.sample_column(key.column, covered, wanted, SEED)
    return number, _cuts(key.canonical(sample.drop_null()), parts)


def cut(values: pa.Array, cuts: pa.Array) -> Iterator[tuple[int, Int64s]]:
    """The number of each range that has some of the values, and their positions, ascending by value. Equal values are
    in the same range; there are no NULLs."""
    order = argsort(values)
    edges = [0, *places(_taken(values, order), cuts), len(values)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        if stop > start:
            yield number, order[start:stop]


def _cuts(values: pa.Array, parts: int) -> pa.Array:
    """Different values, ascending, at most one less than parts."""
    ascending = _taken(values, argsort(values))
    chosen = np.unique(np.arange(1, parts) * len(ascending) // parts)
    cuts = _taken(ascending, chosen[chosen < len(ascending)])
    firsts = np.unique(np.array(places(cuts, cuts), dtype=np.int64))
    return _taken(cuts, firsts)


def _taken(values: pa.Array, positions: npt.NDArray[np.int64]) -> pa.Array:
    return values.take(pa.array(positions))
