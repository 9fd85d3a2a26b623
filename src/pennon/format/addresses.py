"""Row addresses (`fragment id << 32 | offset`, uint64) and the roaring bitmaps that hold sets of them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from pennon.errors import DamagedFile

Addresses = npt.NDArray[np.uint64]
Unsigned = TypeVar("Unsigned", np.uint32, np.uint64)

OFFSET_BITS = np.uint64(32)
OFFSET_MASK = np.uint64(0xFFFF_FFFF)
# From this many addresses on, flags pay off, if they are at most this many for an address.
MANY, FLAGS_PER_ADDRESS = 2048, 32
# Up to this many addresses, it is faster to look at each than to search for the first of each fragment.
FEW = 1 << 12


def fragment_of(addresses: Addresses) -> npt.NDArray[np.uint32]:
    return (addresses >> OFFSET_BITS).astype(np.uint32)


def offset_of(addresses: Addresses) -> npt.NDArray[np.uint32]:
    return (addresses & OFFSET_MASK).astype(np.uint32)


def sorted_unique(addresses: npt.NDArray[Unsigned]) -> npt.NDArray[Unsigned]:
    """Ascending, each once. numpy's unique hashes first, which is many times slower on millions of addresses."""
    if len(addresses) < 2:
        return addresses
    if len(addresses) >= MANY and (found := _from_flags(addresses.astype(np.uint64, copy=False))) is not None:
        return found.astype(addresses.dtype, copy=False)
    ascending = np.sort(addresses)
    fresh = ascending[1:] != ascending[:-1]
    return ascending if fresh.all() else ascending[np.concatenate([[True], fresh])]


def _from_flags(addresses: Addresses) -> Addresses | None:
    """By a flag for each row that there may be, several times as fast as sorting; None if these are too many."""
    first, last = int(addresses.min()) >> 32, int(addresses.max()) >> 32
    bits = int((addresses & OFFSET_MASK).max()).bit_length()
    count = (last - first + 1) << bits
    if count > FLAGS_PER_ADDRESS * len(addresses):
        return None
    flags, shift = np.zeros(count, dtype=np.bool_), np.uint64(bits)
    flags[((addresses >> OFFSET_BITS) - np.uint64(first)) << shift | (addresses & OFFSET_MASK)] = True
    found = np.flatnonzero(flags).astype(np.uint64)
    return ((found >> shift) + np.uint64(first)) << OFFSET_BITS | (found & np.uint64((1 << bits) - 1))


def contains(ascending: Addresses, addresses: Addresses) -> npt.NDArray[np.bool_]:
    """A mask of the addresses, given in any order, that occur in `ascending`."""
    if len(ascending) == 0:
        return np.zeros(len(addresses), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ascending, addresses), len(ascending) - 1)
    return ascending[at] == addresses


def fragment_bounds(addresses: Addresses) -> dict[int, tuple[int, int]]:
    """Fragment id -> start and stop of its addresses in an ascending array."""
    if 0 < len(addresses) <= FEW:
        fragments = fragment_of(addresses)
        edges = (np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist()
        firsts = [0, *edges]
        return dict(zip(fragments[firsts].tolist(), zip(firsts, [*edges, len(addresses)], strict=True), strict=True))
    bounds: dict[int, tuple[int, int]] = {}
    start = 0
    while start < len(addresses):
        fragment = int(addresses[start]) >> 32
        last = np.uint64((fragment << 32) | 0xFFFF_FFFF)
        stop = int(np.searchsorted(addresses[start:], last, "right")) + start
        bounds[fragment] = (start, stop)
        start = stop
    return bounds


def split_by_fragment(addresses: Addresses) -> dict[int, npt.NDArray[np.uint32]]:
    """Ascending addresses as fragment id -> ascending offsets."""
    offsets = offset_of(addresses)
    return {f: offsets[a:b] for f, (a, b) in fragment_bounds(addresses).items()}


def read_fragment_bitmap(content: bytes, where: str) -> BitMap:
    """A portable 32-bit roaring bitmap, as index metadata stores its coverage."""
    if not content:
        return BitMap()
    try:
        return read_bitmap(content)
    except ValueError as error:
        raise DamagedFile(f"the fragment bitmap of {where} cannot be read: {error}") from error


def read_bitmap(content: bytes) -> BitMap:
    """Raises ValueError if the bytes are not a bitmap; roaring itself checks their consistency."""
    return BitMap.deserialize(content)


def read_address_bitmap(content: bytes, where: str) -> BitMap64:
    """A roaring treemap of row addresses."""
    try:
        return BitMap64.deserialize(content)
    except ValueError as error:
        raise DamagedFile(f"the row address bitmap of {where} cannot be read: {error}") from error


def serialize_allowlist(rows: Mapping[int, BitMap | None]) -> bytes:
    """The rows a scan may return, as pylance's scanner takes them: fragment id -> offsets, None for all.

    Layout, little endian: u32 entries, then per entry u32 high word, u32 length, portable roaring bitmap of that
    length; length 0 means every row of the high word.
    """
    parts = [struct.pack("<I", len(rows))]
    for high, offsets in sorted(rows.items()):
        bitmap = b"" if offsets is None else offsets.serialize()
        parts.append(struct.pack("<II", high, len(bitmap)))
        parts.append(bitmap)
    return b"".join(parts)
