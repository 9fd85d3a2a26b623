"""A table of distinct byte strings that kernels number by first appearance, and that grows between their calls."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.index.arrays import Bytes, Int64s, UInt64s
from pennon.index.inverted.analysis import kernels

T = TypeVar("T", bound=np.generic)

# Beyond this, the table of distinct tokens is started again where documents are read one batch after another.
MOST_BYTES = 64 << 20

_FIRST_SLOTS = 1 << 12


class TokenTable:
    """The arrays that kernels take: a hash table of numbers, the ends of all tokens, and their bytes."""

    def __init__(self) -> None:
        self._slots: UInt64s = np.zeros(2 * _FIRST_SLOTS, dtype=np.uint64)
        self._ends: Int64s = np.zeros(_FIRST_SLOTS // 2 + 1, dtype=np.int64)
        self._arena: Bytes = np.empty(_FIRST_SLOTS * 8, dtype=np.uint8)

    @property
    def arrays(self) -> tuple[UInt64s, Int64s, Bytes]:
        """As kernels take them; others after `make_room`."""
        return self._slots, self._ends, self._arena

    @property
    def nbytes(self) -> int:
        """Bytes that the table takes."""
        return sum(array.nbytes for array in self.arrays)

    def text_bytes(self, uniques: int) -> int:
        """Bytes of the first tokens together."""
        return int(self._ends[uniques])

    def is_full(self, uniques: int) -> bool:
        """Whether a further token has no number, of any length."""
        return 4 * uniques + 4 > len(self._slots) or uniques + 2 > len(self._ends)

    def make_room(self, uniques: int, longest: int) -> None:
        """Twice the room of each buffer that is full, for a token of up to `longest` bytes."""
        if self.is_full(uniques):
            known, self._slots = self._slots, np.zeros(2 * len(self._slots), dtype=np.uint64)
            kernels.fill_slots(self._slots, known)
            self._ends = enlarged(self._ends, len(self._slots) // 4 + 1)
        else:
            self._arena = enlarged(self._arena, len(self._arena) + max(len(self._arena), longest))

    def strings(self, uniques: int, first: int = 0) -> pa.Array:
        """The distinct tokens from a number on, as large binary values."""
        ends = self._ends[first : uniques + 1]
        arena = self._arena[ends[0] : ends[-1]]
        offsets = pa.py_buffer(ends - ends[0])
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(ends) - 1, [None, offsets, pa.py_buffer(arena.copy())]
        )


def enlarged(array: npt.NDArray[T], size: int) -> npt.NDArray[T]:
    """A larger array that begins with the given one."""
    larger = np.empty(size, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
