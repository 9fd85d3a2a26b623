"""Sorted values, each with the map of its rows: grouped from the rows of a column, cut, and merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.format.addresses import Addresses
from pennon.index.bitmap.joining import concat_maps, join_maps
from pennon.index.bitmap.row_map import Maps, Places, encode, encode_by_code
from pennon.index.value_order import argsort, exchange_type, fixed_keys, places

# If more than this share of the first rows are distinct, sorting is cheaper than hashing.
DISTINCT_SHARE = 0.3
TRIED_ROWS = 1 << 16
# Bytes of maps and keys that a merge works on at once.
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Keyed:
    """Distinct ascending values, possibly preceded by NULL, in their exchange type, and the map of each."""

    keys: pa.Array
    maps: Maps

    @classmethod
    def of_rows(cls, values: pa.Array, ids: Addresses) -> Keyed:
        """Group rows by value. `values` are of the exchange type."""
        if not values.null_count:
            return _grouped(values, ids)
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        rest = _grouped(values.drop_null(), ids[~is_null])
        nulls = np.ascontiguousarray(ids[is_null])
        of_null = encode(nulls, np.array([0, len(nulls)], dtype=np.int64))
        keys = pa.concat_arrays([pa.nulls(1, values.type), rest.keys])
        return cls(keys, concat_maps([of_null, rest.maps]))

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch) -> Keyed:
        return cls(batch.column(0), Maps.of_array(batch.column(1)))

    @classmethod
    def none(cls, type_: pa.DataType) -> Keyed:
        return cls(pa.array([], type_), Maps.of_array(pa.array([], pa.binary())))

    def to_batch(self) -> pa.RecordBatch:
        """A batch for the exchange between tasks."""
        return pa.record_batch({"keys": self.keys, "maps": self.maps.to_array(pa.large_binary())})

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nulls(self) -> int:
        """1 if there is a map of NULL, else 0."""
        return self.keys.null_count

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + int(self.maps.offsets[-1] - self.maps.offsets[0])

    def slice(self, start: int, stop: int) -> Keyed:
        return Keyed(self.keys.slice(start, stop - start), self.maps.slice(start, stop))

    def cut(self, pivots: pa.Array) -> Iterator[tuple[int, Keyed]]:
        """The keys from each pivot to the next by the number of their range, without empty ranges. NULL is in the
        first."""
        nulls = self.nulls
        edges = [0, *(nulls + place for place in places(self.keys.slice(nulls), pivots)), len(self)]
        for number, (start, stop) in enumerate(pairwise(edges)):
            if stop > start:
                yield number, self.slice(start, stop)

    def without_empty(self) -> Keyed:
        """A copy without keys that have no rows any more."""
        kept = np.flatnonzero(self.maps.sizes > 4)
        if len(kept) == len(self):
            return self
        return Keyed(self.keys.take(pa.array(kept)), self.maps.take(kept))


class KeyedSource(Protocol):
    """Keys in memory, and maps that are read on demand."""

    @property
    def keys(self) -> pa.Array:
        """Distinct and ascending, possibly preceded by NULLs, in their exchange type."""
        ...

    @property
    def nbytes(self) -> int:
        """The approximate size of all maps."""
        ...

    def read(self, start: int, stop: int) -> Maps:
        """The maps of some keys."""
        ...


@dataclass(frozen=True, eq=False)
class HeldSource:
    """Maps that are in memory."""

    held: Keyed

    @property
    def keys(self) -> pa.Array:
        return self.held.keys

    @property
    def nbytes(self) -> int:
        return self.held.nbytes

    def read(self, start: int, stop: int) -> Maps:
        return self.held.maps.slice(start, stop)


def merge_keyed(sources: Sequence[KeyedSource], where: str, part: int = 0, parts: int = 1) -> Iterator[Keyed]:
    """All keys of the sources in order, each once, a bounded number at a time. `part` selects one of `parts`
    consecutive parts of about equal size."""
    sources = [source for source in sources if len(source.keys)]
    if not sources:
        return
    chunks = max(parts, -(-sum(source.nbytes for source in sources) // CHUNK_BYTES))
    pivots = _pivots(sources, chunks)
    low, high = ((len(pivots) + 1) * each // parts for each in (part, part + 1))
    edges = [_edges(source.keys, pivots) for source in sources]
    for chunk in range(low, high):
        taken: list[Keyed] = []
        for source, cuts in zip(sources, edges, strict=True):
            start, stop = cuts[chunk], cuts[chunk + 1]
            if stop > start:
                taken.append(Keyed(source.keys.slice(start, stop - start), source.read(start, stop)))
        if taken:
            yield _joined(taken, where)


def pivots_of_sample(sample: pa.Array, ranges: int) -> pa.Array:
    """Distinct ascending values that cut a column into ranges of about equally many rows."""
    values = sample.cast(exchange_type(sample.type)).drop_null()
    ordered = values.take(pa.array(argsort(values)))
    cuts = np.unique(np.arange(1, ranges) * len(ordered) // ranges)
    return _distinct(ordered.take(pa.array(cuts if len(ordered) else cuts[:0])))


def _grouped(values: pa.Array, ids: Addresses) -> Keyed:
    """Group values without NULLs."""
    if not len(values):
        return Keyed(values, encode(ids, np.zeros(1, dtype=np.int64)))
    words = _words(values)
    tried = words.slice(0, TRIED_ROWS)
    if len(tried.unique()) > DISTINCT_SHARE * len(tried):
        order = argsort(values)
        ordered = values.take(pa.array(order))
        starts = np.append(_firsts(ordered), len(values))
        return Keyed(ordered.take(pa.array(starts[:-1])), encode(np.take(ids, order), starts))
    encoded = words.dictionary_encode()
    codes, count = encoded.indices.to_numpy(), len(encoded.dictionary)
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    keys = values.take(pa.array(first))
    order = argsort(keys)
    rank = np.empty(count, dtype=np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    return Keyed(keys.take(pa.array(order)), encode_by_code(rank[codes], count, ids))


def _words(values: pa.Array) -> pa.Array:
    """The bits of values as hash keys, which distinguish zeros of either sign and NaNs."""
    keys = fixed_keys(values)
    if keys is not None:
        return pa.array(keys)
    return values.view(pa.binary(values.type.bit_width // 8)) if pa.types.is_decimal(values.type) else values


def _firsts(ascending: pa.Array) -> Places:
    """The start of each distinct value."""
    words = _words(ascending)
    changes = pc.not_equal(words[1:], words[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(changes) + 1])


def _distinct(ascending: pa.Array) -> pa.Array:
    return ascending.take(pa.array(_firsts(ascending))) if len(ascending) else ascending


def _pivots(sources: Sequence[KeyedSource], chunks: int) -> pa.Array:
    """Quantiles of all keys: the same number from each source, and then evenly spaced ones of all these."""
    picked: list[pa.Array] = []
    for source in sources:
        values = source.keys.slice(source.keys.null_count)
        places_ = np.unique(np.arange(1, chunks) * len(values) // chunks) if len(values) else np.arange(0)
        picked.append(values.take(pa.array(places_)))
    values = pa.concat_arrays(picked)
    ordered = values.take(pa.array(argsort(values)))
    cuts = np.unique(np.arange(1, chunks) * len(ordered) // chunks) if len(ordered) else np.arange(0)
    return _distinct(ordered.take(pa.array(cuts)))


def _edges(keys: pa.Array, pivots: pa.Array) -> list[int]:
    nulls = keys.null_count
    return [0, *(nulls + place for place in places(keys.slice(nulls), pivots)), len(keys)]


def _joined(parts: Sequence[Keyed], where: str) -> Keyed:
    """The sorted keys of several parts, each once."""
    keys = pa.concat_arrays([part.keys for part in parts])
    maps = concat_maps([part.maps for part in parts])
    is_null: npt.NDArray[np.bool_] = keys.is_null().to_numpy(zero_copy_only=False)
    present = np.flatnonzero(~is_null)
    values = keys.drop_null()
    by_value = argsort(values)
    ordered = values.take(pa.array(by_value))
    order = np.concatenate([np.flatnonzero(is_null), present[by_value]])
    nulls = int(is_null.sum())
    firsts = nulls + _firsts(ordered) if len(ordered) else np.empty(0, dtype=np.int64)
    starts = np.concatenate([np.zeros(min(nulls, 1), dtype=np.int64), firsts, [len(order)]])
    joined = join_maps(maps if _is_identity(order) else maps.take(order), starts, where)
    of_null = [pa.nulls(1, keys.type)] if nulls else []
    return Keyed(pa.concat_arrays([*of_null, ordered.take(pa.array(firsts - nulls))]), joined).without_empty()


def _is_identity(order: npt.NDArray[np.integer]) -> bool:
    return bool((order == np.arange(len(order))).all())
