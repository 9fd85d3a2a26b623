"""The fragments of a table version, as its manifest lists them.

A table may have hundreds of thousands. What planning needs of all of them (ids, rows, deleted rows) is read into
arrays, and a fragment is decoded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from pennon.errors import DamagedFile, DamagedTable
from pennon.format.pb import lance_pb2 as pb
from pennon.format.protobuf_wire import fields_of_many
from pennon.format.row_set import bitmap_of, offsets_of

MAX_ROWS = 2**32
# Up to this many fragments are decoded at once, which is faster than reading fields into arrays.
FEW_FRAGMENTS = 256

REMEDY = "Restore the file, or an older version"
# Fields of the messages DataFragment and DeletionFile.
ID, DELETION_FILE, PHYSICAL_ROWS, NUM_DELETED_ROWS = 1, 3, 4, 4

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeletionFile:
    is_bitmap: bool
    read_version: int
    id: int
    num_deleted_rows: int
    base_id: int | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """A horizontal slice of the table. `field_files` names the data file that holds each field id; lists and structs
    are not in it, only what is below them. `was_replaced` if a column is in a newer file than at first. `file_bytes` is
    the size of its data files, 0 if a writer did not record it."""

    id: int
    physical_rows: int
    deletion_file: DeletionFile | None
    field_files: Mapping[int, str] = field(repr=False)
    inline_row_ids: bytes | None = field(default=None, repr=False)
    was_replaced: bool = False
    file_bytes: int = 0

    @property
    def num_deleted_rows(self) -> int:
        return self.deletion_file.num_deleted_rows if self.deletion_file else 0

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.num_deleted_rows


class Fragments(Mapping[int, Fragment]):
    """The fragments of a manifest by id, in its order."""

    def __init__(self, messages: Sequence[bytes], where: str) -> None:
        """Raises DamagedFile if they contradict each other, or row addresses cannot name their rows."""
        self._messages, self._where = messages, where
        self._decoded: dict[int, Fragment] = {}
        self._numbers = None if len(messages) <= FEW_FRAGMENTS else _numbers(messages)
        if self._numbers is None:
            for message in messages:
                fragment = self._decode(message, DamagedFile)
                self._check_size(fragment.id, fragment.physical_rows)
                self._decoded[fragment.id] = fragment
            self.live = BitMap(self._decoded)
        else:
            ids, rows, _ = self._numbers
            large = np.flatnonzero((ids >= MAX_ROWS) | (rows > MAX_ROWS))
            if len(large):
                self._check_size(int(ids[large[0]]), int(rows[large[0]]))
            self.live = bitmap_of(ids.astype(np.uint32))
        if len(self.live) != len(messages):
            raise DamagedFile(f"manifest {where} lists a fragment twice", REMEDY)

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[int]:
        return iter(self._decoded if self._numbers is None else self._numbers[0].tolist())

    def __contains__(self, fragment: object) -> bool:
        return isinstance(fragment, int | np.integer) and 0 <= int(fragment) < MAX_ROWS and int(fragment) in self.live

    def __getitem__(self, fragment: int) -> Fragment:
        found = self._decoded.get(fragment)
        if found is None:
            if fragment not in self:
                raise KeyError(fragment)
            message = self._messages[self._places([fragment])[0]]
            self._decoded[fragment] = found = self._decode(message, DamagedTable)
        return found

    def rows_in(self, fragments: BitMap) -> int:
        """The live rows of those of some fragments that exist."""
        there = fragments & self.live
        if self._numbers is None:
            return sum(self._decoded[fragment].live_rows for fragment in there)
        _, rows, deleted = self._numbers
        live = rows.astype(np.int64) - deleted.astype(np.int64)
        return int((live if len(there) == len(self) else live[self._places(offsets_of(there))]).sum())

    def _places(self, fragments: npt.ArrayLike) -> Places:
        """Where fragments that exist are in the manifest."""
        order, ascending = self._order
        places = np.searchsorted(ascending, np.asarray(fragments, dtype=np.uint64))
        return places if order is None else order[places]

    @cached_property
    def _order(self) -> tuple[Places | None, npt.NDArray[np.uint64]]:
        """The places of the fragments by ascending id, None if they are listed so; and their ids."""
        assert self._numbers is not None
        ids = self._numbers[0]
        if bool((ids[1:] > ids[:-1]).all()):
            return None, ids
        order = np.argsort(ids)
        return order, ids[order]

    def _check_size(self, fragment: int, rows: int) -> None:
        # Addresses have 32 bits for either. Larger numbers would only lead to large allocations.
        if fragment >= MAX_ROWS or rows > MAX_ROWS:
            problem = f"manifest {self._where} has a fragment {fragment} of {rows} rows, too large for row addresses"
            raise DamagedFile(problem, REMEDY)

    def _decode(self, message: bytes, error: type[DamagedFile]) -> Fragment:
        try:
            return _fragment(pb.DataFragment.FromString(message))
        except (DecodeError, ValueError) as failure:
            raise error(f"manifest {self._where} has a fragment that cannot be read: {failure}", REMEDY) from failure


def _numbers(messages: Sequence[bytes]) -> npt.NDArray[np.uint64] | None:
    """Ids, physical rows and deleted rows of fragments; None if they are better decoded one by one, because they are
    not messages, or unlike those that writers make."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    content = np.frombuffer(b"".join(messages), dtype=np.uint8)
    ends = np.cumsum(lengths)
    found = np.zeros((3, len(messages)), dtype=np.uint64)
    deletions = np.zeros((2, len(messages)), dtype=np.int64)
    try:
        for who, numbers, values, starts, stops in fields_of_many(content, ends - lengths, ends):
            for row, number in ((0, ID), (1, PHYSICAL_ROWS)):
                own = numbers == number
                found[row, who[own]] = values[own]
            own = numbers == DELETION_FILE
            if own.any():
                if deletions[1, who[own]].any():
                    return None  # two messages, of which one is made
                deletions[:, who[own]] = starts[own], stops[own]
        for who, numbers, values, _, _ in fields_of_many(content, *deletions):
            own = numbers == NUM_DELETED_ROWS
            found[2, who[own]] = values[own]
    except ValueError:
        return None
    return found


def _fragment(proto: pb.DataFragment) -> Fragment:
    deletion = None
    if proto.HasField("deletion_file"):
        d = proto.deletion_file
        base = d.base_id if d.HasField("base_id") else None
        deletion = DeletionFile(d.file_type == 1, d.read_version, d.id, d.num_deleted_rows, base)
    # A negative id marks a column of the file that a newer file replaces.
    field_files: dict[int, str] = {}
    replaced, size = False, 0
    for file in proto.files:
        path = file.path
        for number in file.fields:
            if number >= 0:
                field_files[number] = path
            else:
                replaced = True
        size += file.size_bytes
    return Fragment(proto.id, proto.physical_rows, deletion, field_files, proto.inline_row_ids or None, replaced, size)
