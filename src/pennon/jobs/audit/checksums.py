"""Checksums of rows that can be added up: two sets of rows with equal counts and sums are equal.

A row's fact is a 64-bit hash of its address and the bits of its value. Sums are taken modulo 2**64, fragment by
fragment, so that the order of rows does not matter and a task does not keep the rows it has read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.format.addresses import Addresses, fragment_of
from pennon.index.value_order import exchange_type, fixed_keys

Facts = npt.NDArray[np.uint64]

NULL = np.uint64(0x9E37_79B9_7F4A_7C15)
# Bytes of values hashed at once, each of which takes about 24 bytes of memory; longer values are hashed one by one.
HASHED_BYTES = 1 << 20
LONG_VALUE = 1 << 16


@dataclass(frozen=True, eq=False)
class Sums:
    """By fragment, the number of rows and the sum of their facts."""

    fragments: npt.NDArray[np.uint32]  # ascending
    counts: npt.NDArray[np.int64]
    facts: Facts

    @classmethod
    def over(cls, fragments: Iterable[int]) -> Sums:
        """Sums over no rows."""
        known = np.array(sorted(fragments), dtype=np.uint32)
        return cls(known, np.zeros(len(known), dtype=np.int64), np.zeros(len(known), dtype=np.uint64))

    def add(self, addresses: Addresses, facts: Facts) -> None:
        """Add rows in place; all of them are in the fragments."""
        at = np.searchsorted(self.fragments, fragment_of(addresses))
        self.counts[:] += np.bincount(at, minlength=len(self.fragments))
        np.add.at(self.facts, at, facts)

    def join(self, other: Sums) -> None:
        """Add other sums in place; their fragments are a subset of these."""
        at = np.searchsorted(self.fragments, other.fragments)
        self.counts[at] += other.counts
        self.facts[at] += other.facts

    def filled(self) -> Sums:
        """A copy without empty fragments, to send to the driver."""
        kept = self.counts > 0
        return Sums(self.fragments[kept], self.counts[kept], self.facts[kept])

    def of(self, fragments: Iterable[int]) -> Sums:
        at = np.searchsorted(self.fragments, np.array(sorted(fragments), dtype=np.uint32))
        return Sums(self.fragments[at], self.counts[at], self.facts[at])

    def differing(self, other: Sums) -> BitMap:
        """The fragments whose rows differ; both sides have the same fragments."""
        return BitMap(self.fragments[(self.counts != other.counts) | (self.facts != other.facts)])


def facts_of(addresses: Addresses, values: pa.Array) -> Facts:
    """The facts of rows with a value, or NULL."""
    spelled = values.cast(exchange_type(values.type))
    hashed = np.full(len(values), NULL, dtype=np.uint64)
    present = slice(None)
    if spelled.null_count:
        present = spelled.is_valid().to_numpy(zero_copy_only=False)
        spelled = spelled.drop_null()
    hashed[present] = _hash(spelled)
    return facts_of_hashes(addresses, hashed)


def facts_of_hashes(addresses: Addresses, hashed: Facts | np.uint64) -> Facts:
    return mixed(mixed(addresses) + hashed)


def mixed(words: Facts) -> Facts:
    """A permutation of 64-bit words that leaves no pattern (the end of splitmix64)."""
    words = words + NULL
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return words ^ (words >> np.uint64(31))


def _hash(values: pa.Array) -> Facts:
    """Hashes of values without NULLs, by their bits: NaNs and zeros of either sign are distinct."""
    keys = fixed_keys(values)
    if keys is not None:
        wide = keys.astype(np.int64 if keys.dtype.kind == "i" else np.uint64)
        return mixed(wide.view(np.uint64))
    if pa.types.is_decimal(values.type):
        values = values.view(pa.binary(values.type.bit_width // 8))
    spelled = values.cast(pa.large_binary())
    _, offset_buffer, data_buffer = spelled.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[spelled.offset : spelled.offset + len(spelled) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    hashed = np.zeros(len(spelled), dtype=np.uint64)
    start = 0
    while start < len(spelled):
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + HASHED_BYTES, "right")) - 1)
        hashed[start:stop] = _hash_bytes(data, offsets[start : stop + 1])
        start = stop
    return hashed


def _hash_bytes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Facts:
    """The sum of every byte times a weight that depends on its position in the value."""
    lengths = np.diff(offsets)
    long = np.flatnonzero(lengths > LONG_VALUE)
    short = lengths.copy()
    short[long] = 0
    ends = np.cumsum(short)
    place = np.arange(int(ends[-1])) - np.repeat(ends - short, short)
    content = data[place + np.repeat(offsets[:-1], short)]
    reached = np.zeros(len(place) + 1, dtype=np.uint64)
    np.cumsum((content + np.uint64(1)) * mixed(place.view(np.uint64)), out=reached[1:])
    hashed = reached[ends] - reached[ends - short] + lengths.view(np.uint64) * NULL
    for at in long:
        digest = blake2b(data[offsets[at] : offsets[at + 1]].tobytes(), digest_size=8).digest()
        hashed[at] = int.from_bytes(digest, "little")
    return mixed(hashed)
