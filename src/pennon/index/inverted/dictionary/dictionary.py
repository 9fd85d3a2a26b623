"""A dictionary: from terms in byte order to the numbers of their posting lists, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.index.arrays import Bytes, Int64s
from pennon.index.inverted.dictionary import read_kernels as kernels
from pennon.index.inverted.dictionary.node_kernels import FOOTER, HEADER
from pennon.index.inverted.dictionary.write_kernels import checksum, write_dictionary

# Of a transition: input, distance and output, and its share of a node's table and of what else a node has.
_MOST_BYTES_PER_TRANSITION = 40


@dataclass(frozen=True, eq=False)
class Terms:
    """Distinct terms in byte order: their bytes one after another, and where each ends, from 0."""

    data: Bytes
    ends: Int64s

    def __len__(self) -> int:
        return len(self.ends) - 1

    @classmethod
    def of(cls, strings: pa.Array) -> Terms:
        """Sorted large strings."""
        content = strings.buffers()[2]
        data = np.frombuffer(content, dtype=np.uint8) if content is not None else np.empty(0, dtype=np.uint8)
        if not len(strings):
            return cls(np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        ends = np.frombuffer(strings.buffers()[1], dtype=np.int64)[strings.offset : strings.offset + len(strings) + 1]
        return cls(data[ends[0] : ends[-1]], ends - ends[0])

    def strings(self) -> pa.Array:
        """As large binary values."""
        buffers = [None, pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)


class Dictionary:
    """The bytes of a dictionary, which are trusted in nothing."""

    def __init__(self, content: Bytes, where: str) -> None:
        if len(content) < HEADER + FOOTER or bytes(content[:16]) != (3).to_bytes(16, "little"):
            raise DamagedFile(f"{where} does not hold a dictionary")
        self._data, self._where = content, where
        self.count, self._root = (int(number) for number in np.frombuffer(content[-FOOTER:-4].tobytes(), dtype="<i8"))
        if self.count < 0 or self._root < 0:
            raise self._damaged()
        if int(checksum(content, len(content) - 4)) != int.from_bytes(bytes(content[-4:]), "little"):
            raise self._damaged()

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def find(self, term: str) -> int | None:
        """The number of a term, if it is there."""
        key = np.frombuffer(term.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        return self._checked(int(kernels.find(self._data, self._root, key)))

    def list_all(self, total_length: int) -> tuple[Terms, Int64s]:
        """All terms, and the number of each. `total_length` is their length in bytes, as recorded next to them."""
        if self.count > total_length + 1 or total_length > self.count * self._data.nbytes:
            raise self._damaged()
        keys, ends = np.empty(total_length, dtype=np.uint8), np.zeros(self.count + 2, dtype=np.int64)
        values = np.empty(self.count + 1, dtype=np.int64)
        count, used = kernels.list_all(self._data, self._root, keys, ends, values)
        if count != self.count or used != total_length:
            raise self._damaged()
        return Terms(keys, ends[: count + 1]), self._numbers(values[:count])

    def find_near(self, word: str, distance: int, prefix: int, most: int) -> list[tuple[str, int]]:
        """The first terms in byte order within an edit distance of a word that have its first `prefix` characters, at
        most `most` of them, with their numbers."""
        points = np.array([ord(character) for character in word], dtype=np.int64)
        most = min(most, self.count)
        keys = np.empty(most * 4 * (len(word) + distance), dtype=np.uint8)
        ends, values = np.zeros(most + 1, dtype=np.int64), np.empty(most, dtype=np.int64)
        count = kernels.find_near(self._data, self._root, points, distance, prefix, keys, ends, values)
        if count < 0:
            raise self._damaged()
        numbers = self._numbers(values[:count]).tolist()
        bounds = zip(ends[:-1].tolist(), ends[1 : count + 1].tolist(), strict=False)
        found = [bytes(keys[start:end]).decode("utf-8", "replace") for start, end in bounds]
        return list(zip(found, numbers, strict=True))

    def _checked(self, number: int) -> int | None:
        if number == kernels.ABSENT:
            return None
        if not 0 <= number < self.count:
            raise self._damaged()
        return number

    def _numbers(self, values: Int64s) -> Int64s:
        if len(values) and (values.min() < 0 or values.max() >= self.count):
            raise self._damaged()
        return values

    def _damaged(self) -> DamagedFile:
        return DamagedFile(f"the dictionary in {self._where} is damaged", "Rebuild the index")


def encode_dictionary(terms: Terms, numbers: Int64s) -> Bytes:
    """The bytes of a dictionary of terms with their numbers."""
    longest = int(np.diff(terms.ends).max(initial=0))
    total = int(terms.ends[-1])
    out = np.empty(HEADER + FOOTER + 64 + total * _MOST_BYTES_PER_TRANSITION, dtype=np.uint8)
    most = min(256 * (longest + 1), len(terms) + longest + 1)
    end = write_dictionary(terms.data, terms.ends, numbers, out, longest, most)
    out[end : end + 4] = np.frombuffer(int(checksum(out, end)).to_bytes(4, "little"), dtype=np.uint8)
    return out[: end + 4]
