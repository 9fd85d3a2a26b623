"""A minimal protocol buffers parser, for messages of which only a few numbers are needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Values = npt.NDArray[np.uint64]


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field: bytes for a length-delimited field, an int for any other. Raises ValueError if
    the content is not a message."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        number, form = key >> 3, key & 7
        if form == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        if form == 2:
            size, at = _varint(content, at)
        elif form in (1, 5):
            size = 8 if form == 1 else 4
        else:
            raise ValueError(f"a field of wire type {form}")
        if at + size > end:
            raise ValueError(f"a field of {size} bytes where {end - at} are left")
        piece = content[at : at + size]
        yield number, piece if form == 2 else int.from_bytes(piece, "little")
        at += size


def numbers(content: int | bytes) -> list[int]:
    """A packed list of varints, or a single one."""
    if isinstance(content, int):
        return [content]
    found: list[int] = []
    at = 0
    while at < len(content):
        value, at = _varint(content, at)
        found.append(value)
    return found


def fields_of_many(
    content: npt.NDArray[np.uint8], starts: Places, ends: Places
) -> Iterator[tuple[Places, Places, Values, Places, Places]]:
    """The fields of many messages at [start, end) of some bytes: the first of each, then the second, and so on.

    A step has the messages that have such a field, its number, its value (0 unless it is a varint), and where the bytes
    of a length-delimited one start and stop. Raises ValueError if one of them is not a message.
    """
    who = np.flatnonzero(starts < ends)
    at, end = starts[who], ends[who]
    while len(who):
        keys, at = _varints(content, at, end)
        numbers, forms = (keys >> np.uint64(3)).astype(np.int64), keys & np.uint64(7)
        plain = (forms == 0) | (forms == 2)
        if not plain.all():
            raise ValueError("fields of fixed size, or none")
        values, at = _varints(content, at, end)
        delimited = forms == 2
        if (values[delimited] > len(content)).any():
            raise ValueError("a field that is longer than the message")
        stops = at + np.where(delimited, values, 0).astype(np.int64)
        if (stops > end).any():
            raise ValueError("a field that is longer than the message")
        yield who, numbers, np.where(delimited, np.uint64(0), values), at, stops
        left = stops < end
        who, at, end = who[left], stops[left], end[left]


def _varints(content: npt.NDArray[np.uint8], at: Places, end: Places) -> tuple[Values, Places]:
    """The numbers at some places, and where they end."""
    values, after = np.zeros(len(at), dtype=np.uint64), at
    more = np.arange(len(at))
    for shift in range(0, 70, 7):
        places = after if len(more) == len(at) else after[more]
        if (places >= (end if len(more) == len(at) else end[more])).any():
            raise ValueError("a number that does not end")
        bytes_ = content[places]
        part = (bytes_ & 0x7F).astype(np.uint64) << np.uint64(shift)
        if len(more) == len(at):
            values |= part
            after = after + 1
        else:
            values[more] |= part
            after[more] += 1
        more = more[bytes_ >= 0x80]
        if not len(more):
            return values, after
    raise ValueError("a number of more than ten bytes")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise ValueError("a number that does not end")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ValueError("a number of more than ten bytes")
