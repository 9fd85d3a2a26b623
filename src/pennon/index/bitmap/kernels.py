"""Compiled kernels for thousands of row maps: a column of distinct values has as many maps as rows.

The layout is described in `row_map`. Every function takes maps one after another in one buffer. Counts and sizes are
checked before use: those of a damaged map never lead to reads beyond its bytes.

The first call of a process compiles a function, unless an earlier process has cached the result on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.compiled import compiled

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# Kinds of containers: sorted offsets, a bit for each offset, or runs of offsets.
ARRAY, BITS, RUNS = 0, 1, 2
MOST_IN_ARRAY = 4096
BITS_BYTES = 8192
# First bytes of a bitmap without runs, and the lower half of those of one with runs.
PLAIN_COOKIE, RUN_COOKIE = 12346, 12347
# With runs, bitmaps of fewer containers have no list of their positions.
NO_OFFSET_THRESHOLD = 4


@compiled()
def map_sizes(ids: Words, starts: Places) -> Places:
    """The start of the map of each group, and the end of the last one."""
    offsets = np.zeros(len(starts), dtype=np.int64)
    for group in range(len(starts) - 1):
        size = 4
        at, end = starts[group], starts[group + 1]
        high = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
        while at < end:
            block = ids[at] >> np.uint64(16)
            count = 1
            last = ids[at]
            at += 1
            while at < end and ids[at] >> np.uint64(16) == block:
                if ids[at] != last:
                    count += 1
                    last = ids[at]
                at += 1
            if block >> np.uint64(16) != high:
                high = block >> np.uint64(16)
                size += 16
            size += 8 + (2 * count if count <= MOST_IN_ARRAY else BITS_BYTES)
        offsets[group + 1] = offsets[group] + size
    return offsets


@compiled()
def _put32(data: Bytes, at: int, value: Any) -> None:
    for byte in range(4):
        data[at + byte] = (value >> (8 * byte)) & 255


@compiled()
def _put16(data: Bytes, at: int, value: Any) -> None:
    data[at] = value & 255
    data[at + 1] = (value >> 8) & 255


@compiled()
def _get32(data: Bytes, at: int) -> Any:
    return (
        np.int64(data[at])
        | (np.int64(data[at + 1]) << 8)
        | (np.int64(data[at + 2]) << 16)
        | (np.int64(data[at + 3]) << 24)
    )


@compiled()
def _get16(data: Bytes, at: int) -> Any:
    return np.int64(data[at]) | (np.int64(data[at + 1]) << 8)


@compiled()
def write_maps(ids: Words, starts: Places, offsets: Places, data: Bytes) -> None:
    """Fill in the maps of groups of ascending ids; an id that is repeated counts once. `data` must be zeros."""
    for group in range(len(starts) - 1):
        at, end = starts[group], starts[group + 1]
        place = offsets[group] + 4
        entries = 0
        while at < end:
            high = ids[at] >> np.uint64(32)
            stop = at
            containers = 0
            block = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
            while stop < end and ids[stop] >> np.uint64(32) == high:
                if ids[stop] >> np.uint64(16) != block:
                    block = ids[stop] >> np.uint64(16)
                    containers += 1
                stop += 1
            begin = place + 8
            header = begin + 8
            content = header + 8 * containers
            _put32(data, begin, PLAIN_COOKIE)
            _put32(data, begin + 4, containers)
            for number in range(containers):
                block = ids[at] >> np.uint64(16)
                last = at
                count = 0
                while last < stop and ids[last] >> np.uint64(16) == block:
                    if last == at or ids[last] != ids[last - 1]:
                        count += 1
                    last += 1
                _put16(data, header + 4 * number, np.int64(block & np.uint64(0xFFFF)))
                _put16(data, header + 4 * number + 2, count - 1)
                _put32(data, header + 4 * containers + 4 * number, content - begin)
                if count <= MOST_IN_ARRAY:
                    for row in range(at, last):
                        if row == at or ids[row] != ids[row - 1]:
                            _put16(data, content, np.int64(ids[row] & np.uint64(0xFFFF)))
                            content += 2
                else:
                    for row in range(at, last):
                        low = np.int64(ids[row] & np.uint64(0xFFFF))
                        data[content + (low >> 3)] |= np.uint8(1 << (low & 7))
                    content += BITS_BYTES
                at = last
            _put32(data, place, np.int64(high))
            _put32(data, place + 4, content - begin)
            place = content
            entries += 1
        _put32(data, offsets[group], entries)


@compiled()
def find_entries(data: Bytes, offsets: Places) -> tuple[int, Words, Places, Places, Places]:
    """The entries of all maps: high half, map, position of the bitmap, its size. The first number is that of the first
    damaged map, or -1."""
    total = 0
    for number in range(len(offsets) - 1):
        size = offsets[number + 1] - offsets[number]
        # An entry has a header of at least eight bytes.
        if size < 4 or _get32(data, offsets[number]) > (size - 4) // 8:
            return number, np.zeros(0, np.uint64), offsets[:0], offsets[:0], offsets[:0]
        total += _get32(data, offsets[number])
    highs = np.empty(total, dtype=np.uint64)
    owners = np.empty(total, dtype=np.int64)
    places = np.empty(total, dtype=np.int64)
    sizes = np.empty(total, dtype=np.int64)
    found = 0
    for number in range(len(offsets) - 1):
        at, end = offsets[number] + 4, offsets[number + 1]
        last = -1
        for _ in range(_get32(data, offsets[number])):
            if end - at < 8:
                return number, highs, owners, places, sizes
            high, size = _get32(data, at), _get32(data, at + 4)
            at += 8
            if high <= last or size > end - at:
                return number, highs, owners, places, sizes
            highs[found], owners[found], places[found], sizes[found] = high, number, at, size
            found += 1
            last = high
            at += size
        if at != end:
            return number, highs, owners, places, sizes
    return -1, highs, owners, places, sizes


@compiled()
def count_containers(data: Bytes, places: Places, sizes: Places) -> tuple[int, int]:
    """The number of containers of all bitmaps according to their headers, and the first bitmap whose header is damaged,
    or -1."""
    total = 0
    for entry in range(len(places)):
        at, size = places[entry], sizes[entry]
        if size == 0:
            continue
        if size < 8:
            return total, entry
        cookie = _get32(data, at)
        if cookie == PLAIN_COOKIE:
            count = _get32(data, at + 4)
        elif cookie & 0xFFFF == RUN_COOKIE:
            count = (cookie >> 16) + 1
        else:
            return total, entry
        # A container has at least four bytes of header and two of content.
        if count > 65536 or 6 * count > size:
            return total, entry
        total += count
    return total, -1


@compiled()
def find_containers(
    data: Bytes, highs: Words, owners: Places, places: Places, sizes: Places, total: int
) -> tuple[int, Words, Places, Bytes, Places, Places]:
    """For every container: its first id, its map, its kind, its rows, and the start of its content. The first number is
    that of the first damaged bitmap, or -1."""
    bases = np.empty(total, dtype=np.uint64)
    maps = np.empty(total, dtype=np.int64)
    kinds = np.empty(total, dtype=np.uint8)
    rows = np.empty(total, dtype=np.int64)
    contents = np.empty(total, dtype=np.int64)
    found = 0
    for entry in range(len(places)):
        begin, size = places[entry], sizes[entry]
        if size == 0:
            continue
        end = begin + size
        cookie = _get32(data, begin)
        has_runs = cookie != PLAIN_COOKIE
        count = (cookie >> 16) + 1 if has_runs else _get32(data, begin + 4)
        marks = begin + 4  # a bit for each container that consists of runs
        header = marks + (count + 7) // 8 if has_runs else begin + 8
        at = header + 4 * count
        if not has_runs or count >= NO_OFFSET_THRESHOLD:
            at += 4 * count  # the list of positions, which follow from the sizes
        if at > end:
            return entry, bases, maps, kinds, rows, contents
        last_key = -1
        for number in range(count):
            key, card = _get16(data, header + 4 * number), _get16(data, header + 4 * number + 2) + 1
            if key <= last_key:
                return entry, bases, maps, kinds, rows, contents
            last_key = key
            kind = ARRAY if card <= MOST_IN_ARRAY else BITS
            if has_runs and (data[marks + (number >> 3)] >> np.uint8(number & 7)) & 1:
                kind = RUNS
                if end - at < 2:
                    return entry, bases, maps, kinds, rows, contents
                length = 2 + 4 * _get16(data, at)
            else:
                length = 2 * card if kind == ARRAY else BITS_BYTES
            if length > end - at or not _is_valid(data, at, kind, card):
                return entry, bases, maps, kinds, rows, contents
            bases[found] = (highs[entry] << np.uint64(32)) | np.uint64(key << 16)
            maps[found], kinds[found], rows[found], contents[found] = owners[entry], kind, card, at
            found += 1
            at += length
        if at != end:
            return entry, bases, maps, kinds, rows, contents
    return -1, bases, maps, kinds, rows, contents


@compiled()
def _is_valid(data: Bytes, at: int, kind: int, card: int) -> bool:
    """Whether a container has ascending offsets, as many as its header records."""
    last = -1
    count = 0
    if kind == ARRAY:
        for row in range(card):
            value = _get16(data, at + 2 * row)
            if value <= last:
                return False
            last = value
        return True
    if kind == BITS:
        for byte in range(BITS_BYTES):
            bits = data[at + byte]
            while bits:
                bits &= bits - np.uint8(1)
                count += 1
        return count == card
    for run in range(_get16(data, at)):
        start, more = _get16(data, at + 2 + 4 * run), _get16(data, at + 4 + 4 * run)
        if start <= last or start + more > 0xFFFF:
            return False
        last = start + more
        count += more + 1
    return count == card


@compiled()
def read_containers(data: Bytes, bases: Words, kinds: Bytes, rows: Places, contents: Places, ids: Words) -> None:
    """The ids of valid containers, one container after another."""
    found = 0
    for number in range(len(bases)):
        base, at = bases[number], contents[number]
        if kinds[number] == ARRAY:
            for row in range(rows[number]):
                ids[found] = base | np.uint64(_get16(data, at + 2 * row))
                found += 1
        elif kinds[number] == BITS:
            for byte in range(BITS_BYTES):
                bits = data[at + byte]
                if bits:
                    for bit in range(8):
                        if (bits >> np.uint8(bit)) & 1:
                            ids[found] = base | np.uint64(8 * byte + bit)
                            found += 1
        else:
            for run in range(_get16(data, at)):
                start, more = _get16(data, at + 2 + 4 * run), _get16(data, at + 4 + 4 * run)
                for value in range(start, start + more + 1):
                    ids[found] = base | np.uint64(value)
                    found += 1


@compiled()
def joined_sizes(highs: Words, sizes: Places, starts: Places) -> tuple[Places, bool]:
    """The start of the map of each group of entries, and whether some group has a high half twice."""
    offsets = np.zeros(len(starts), dtype=np.int64)
    repeated = False
    for group in range(len(starts) - 1):
        size = 4
        for entry in range(starts[group], starts[group + 1]):
            size += 8 + sizes[entry]
            if entry > starts[group] and highs[entry] == highs[entry - 1]:
                repeated = True
        offsets[group + 1] = offsets[group] + size
    return offsets, repeated


@compiled()
def write_joined(
    data: Bytes, highs: Words, places: Places, sizes: Places, starts: Places, offsets: Places, joined: Bytes
) -> None:
    """Copy the bitmaps of every group, whose entries are ascending, into one map."""
    for group in range(len(starts) - 1):
        at = offsets[group]
        _put32(joined, at, starts[group + 1] - starts[group])
        at += 4
        for entry in range(starts[group], starts[group + 1]):
            _put32(joined, at, np.int64(highs[entry]))
            _put32(joined, at + 4, sizes[entry])
            at += 8
            joined[at : at + sizes[entry]] = data[places[entry] : places[entry] + sizes[entry]]
            at += sizes[entry]


@compiled()
def count_rows(
    data: Bytes, bases: Words, owners: Places, kinds: Bytes, contents: Places, rows: Places, counts: Places
) -> None:
    """Add to `counts`, by map, the rows of valid containers and the runs of consecutive ids."""
    last = np.uint64(0)
    owner = np.int64(-1)
    for number in range(len(bases)):
        base, at = bases[number], contents[number]
        if owners[number] != owner:
            owner = owners[number]
            last = np.uint64(0xFFFF_FFFF_FFFF_FFF0)
        runs = 0
        if kinds[number] == ARRAY:
            for row in range(rows[number]):
                value = base | np.uint64(_get16(data, at + 2 * row))
                runs += value != last + np.uint64(1)
                last = value
        elif kinds[number] == BITS:
            before = np.uint8(last + np.uint64(1) == base)
            for byte in range(BITS_BYTES):
                bits = data[at + byte]
                # A run begins at each bit whose lower neighbor is not set.
                begins = bits & ~np.uint8((bits << np.uint8(1)) | before)
                while begins:
                    begins &= begins - np.uint8(1)
                    runs += 1
                before = bits >> np.uint8(7)
            last = base | np.uint64(0xFFFF) if before else np.uint64(0xFFFF_FFFF_FFFF_FFF0)
        else:
            for run in range(_get16(data, at)):
                start, more = _get16(data, at + 2 + 4 * run), _get16(data, at + 4 + 4 * run)
                value = base | np.uint64(start)
                runs += value != last + np.uint64(1)
                last = value + np.uint64(more)
        counts[owner, 0] += rows[number]
        counts[owner, 1] += runs


@compiled()
def copy_maps(data: Bytes, begins: Places, offsets: Places, copied: Bytes) -> None:
    """Copy maps from any positions to consecutive ones."""
    for number in range(len(begins)):
        size = offsets[number + 1] - offsets[number]
        copied[offsets[number] : offsets[number + 1]] = data[begins[number] : begins[number] + size]


@compiled()
def bucket(codes: npt.NDArray[np.int32], starts: Places, ids: Words) -> Words:
    """The ids by ascending code, those of a code in their original order; `starts` is the start of each code."""
    places = starts.copy()
    ordered = np.empty(len(ids), dtype=np.uint64)
    for row in range(len(codes)):
        ordered[places[codes[row]]] = ids[row]
        places[codes[row]] += 1
    return ordered
