"""A minimal protocol buffers parser, for messages of which only a few numbers are needed."""

from __future__ import annotations

from collections.abc import Iterator


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
