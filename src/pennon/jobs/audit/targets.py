"""The targets of an audit: segments, cut into pieces of about equal work, and the columns they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, contains, fragment_of
from pennon.format.index_metadata import IndexSegment
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.file_health import file_damage
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.audit.checksums import Facts
from pennon.jobs.shared.tasks import ROWS_PER_TASK


@dataclass(frozen=True)
class Subject:
    """A segment to audit and the fragments to compare. `stores_addresses` is the form of its ids."""

    segment: IndexSegment
    column: str
    stores_addresses: bool
    fragments: FrozenBitMap = field(repr=False)


@dataclass(frozen=True)
class Piece:
    """Parts [start, stop) of a segment's files: pages, partitions."""

    subject: Subject
    start: int
    stop: int


@dataclass(frozen=True)
class View:
    """Rows of a column that indices contain. `read` scans them as facts; `detail` is an argument of the kind. A row may
    have `several` facts, such as one for each token of a text."""

    column: str
    read: Callable[[Pin, View, ScanSlice], Iterator[tuple[Addresses, Facts]]]
    detail: Hashable = None
    several: bool = False


@dataclass(frozen=True)
class Inspected:
    """The metadata in a segment's files, or the reason why it is invalid. `skipped` is not damage."""

    pieces: tuple[Piece, ...] = ()
    view: View | None = None
    damage: str | None = None
    skipped: str | None = None


class Answered:
    """Selects the stored rows to compare: those that a query over the segment would return, in the compared
    fragments."""

    def __init__(self, pin: Pin, subject: Subject) -> None:
        snapshot = pin.open()
        self._locate = None if subject.stores_addresses else snapshot.address_of_id.locate
        self._reuse = read_fragment_reuse(snapshot) if subject.stores_addresses else None
        # By fragment id; the last entry is for all higher ids.
        self._compared = np.zeros(max(subject.fragments, default=0) + 2, dtype=np.bool_)
        self._compared[list(subject.fragments)] = True
        self._deleted = snapshot.deleted_addresses(BitMap(subject.fragments))

    def locate(self, ids: Addresses) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The current address of each stored id, and whether it counts."""
        addresses, kept = ids, np.ones(len(ids), dtype=np.bool_)
        if self._locate is not None:
            addresses, kept = self._locate(ids)
        elif self._reuse is not None:
            addresses, kept = self._reuse.remap(ids)
        kept = kept & self._compared.take(fragment_of(addresses), mode="clip")
        if len(self._deleted):
            kept &= ~contains(self._deleted, addresses)
        return addresses, kept


@lru_cache(maxsize=8)
def answered_by(pin: Pin, subject: Subject) -> Answered:
    """Opened once per process."""
    return Answered(pin, subject)


def check_files(pin: Pin, segment: IndexSegment) -> None:
    """Raises DamagedFile if a file of the manifest is missing or its size differs from the record."""
    damage = file_damage(pin.open().store, segment)
    if damage is not None:
        raise DamagedFile(damage)


def cut_pieces(subject: Subject, weights: npt.NDArray[np.integer]) -> tuple[Piece, ...]:
    reached = np.cumsum(weights)
    if not len(reached):
        return ()
    parts = -(-int(reached[-1]) // ROWS_PER_TASK)
    edges = {0, len(weights), *np.searchsorted(reached, np.arange(1, parts) * ROWS_PER_TASK).tolist()}
    cuts = sorted(edges)
    return tuple(Piece(subject, a, b) for a, b in pairwise(cuts))


@dataclass
class CodeTally:
    """The number of rows whose codes were checked, and of wrong ones by fragment."""

    rows: int = 0
    wrong: dict[int, int] = field(default_factory=dict)

    def add(self, rows: int, wrong: Addresses) -> None:
        self.rows += rows
        for fragment, count in zip(*np.unique(fragment_of(wrong), return_counts=True), strict=True):
            self.wrong[int(fragment)] = self.wrong.get(int(fragment), 0) + int(count)

    def join(self, other: CodeTally) -> None:
        self.rows += other.rows
        for fragment, count in other.wrong.items():
            self.wrong[fragment] = self.wrong.get(fragment, 0) + count
