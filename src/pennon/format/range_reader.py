"""Bytes of a file of an object store, read with those next to them: a request takes longer than to read some more."""

from __future__ import annotations

from pennon.format.scattered_values import ReadAt

# A file up to this size is read as a whole.
WHOLE_BYTES = 1 << 20
# The least that is read of a larger one.
LEAST_BYTES = 1 << 16


class RangeReader:
    """Reads of one file, in one thread. What was read is kept for as long as the object."""

    def __init__(self, read: ReadAt, size: int) -> None:
        self._read, self._size = read, size
        self._held: list[tuple[int, bytes]] = []

    def read(self, position: int, length: int) -> bytes:
        """All of some bytes, or DamagedFile."""
        for start, content in self._held:
            if start <= position and position + length <= start + len(content):
                return content[position - start : position - start + length]
        if position + length > self._size:
            return self._read(position, length)  # which fails as it does for other files
        start, end = position, min(self._size, position + max(length, LEAST_BYTES))
        if self._size <= WHOLE_BYTES:
            start, end = 0, self._size
        content = self._read(start, end - start)
        self._held.append((start, content))
        return content[position - start : position - start + length]
