"""The two sides of an audit: rows as a segment answers them, and rows as the table has them, as facts.

Both are read twice at most: once to be added up, and again, where sums differ, to be told one from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import Addresses, contains, fragment_of
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin, ScanSlice
from pennon.index.btree.pages import Run
from pennon.index.btree.row_sequence import Cut, Sequence, Stretch
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.kind import Family
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Vectors, is_vector_type, to_matrix
from pennon.jobs.audit.checksums import Facts, Sums, facts_of, facts_of_hashes
from pennon.jobs.shared.tasks import ROWS_PER_TASK

# Of a vector it only matters whether it is there; codes are looked at by themselves.
PRESENT = np.uint64(1)
# Vectors scanned at once.
SCANNED_BYTES = 32 << 20


@dataclass(frozen=True)
class Subject:
    """A segment under audit and the fragments to compare. `stores_addresses` says what its ids are."""

    segment: IndexSegment
    column: str
    family: Family
    stores_addresses: bool
    fragments: FrozenBitMap = field(repr=False)


@dataclass(frozen=True)
class Piece:
    """Pages [start, stop) of a B-tree, or partitions of a vector index."""

    subject: Subject
    start: int
    stop: int


@dataclass(frozen=True)
class View:
    """Rows of a column that indices hold: all, or those with a vector that can be measured."""

    column: str
    metric: Metric | None


@dataclass(frozen=True)
class Inspected:
    """What the metadata in a segment's files says, or why that makes no sense. `skipped` is no damage."""

    pieces: tuple[Piece, ...] = ()
    view: View | None = None
    damage: str | None = None
    skipped: str | None = None


def inspect(pin: Pin, subject: Subject) -> Inspected:
    """Task: whether files are there and open, and how to cut the segment into pieces of about equal work."""
    try:
        _check_files(pin, subject.segment)
        if subject.family is Family.SCALAR:
            lookup = sequence_of(pin, subject).lookup
            weights = np.full(lookup.pages, lookup.batch_size)
            view = View(subject.column, None)
        else:
            if not is_vector_type(pin.open().column(subject.column).type):
                return Inspected(skipped="its column does not hold vectors of a kind Pennon knows")
            files = files_of(pin, subject)
            weights, view = files.layout.lengths, View(subject.column, files.metric)
    except DamagedFile as error:
        return Inspected(damage=error.problem)
    except UnsupportedTable as error:
        return Inspected(skipped=error.problem)
    return Inspected(_cut(subject, weights), view)


def stored_rows(pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
    """What queries would find of a piece, under today's addresses. May raise DamagedFile."""
    answered = answered_by(pin, piece.subject)
    if piece.subject.family is Family.SCALAR:
        sequence = sequence_of(pin, piece.subject)
        for run in sequence.read(Stretch(Cut(piece.start), Cut(piece.stop))):
            ids, values = _joined(run)
            addresses, kept = answered.locate(ids)
            yield addresses[kept], facts_of(addresses[kept], values.filter(pa.array(kept)))
        return
    files = files_of(pin, piece.subject)
    for number in range(piece.start, piece.stop):
        addresses, kept = answered.locate(files.read_partition(number).row_ids)
        yield addresses[kept], facts_of_hashes(addresses[kept], PRESENT)


def table_rows(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """What indices over the column should hold of a slice."""
    if view.metric is None:
        snapshot = pin.open()
        for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
            yield addresses, facts_of(addresses, values)
        return
    for _, addresses in scan_vectors(pin, view, part):
        yield addresses, facts_of_hashes(addresses, PRESENT)


def scan_vectors(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Vectors, Addresses]]:
    """Vectors that an index holds, with their addresses."""
    snapshot = pin.open()
    column = snapshot.column(view.column)
    width = column.type.list_size * column.type.value_type.bit_width // 8
    metric = cast(Metric, view.metric)
    for values, addresses in snapshot.scan_column(column, part, max(1, SCANNED_BYTES // width)):
        vectors, whole = to_matrix(values)
        kept = np.flatnonzero(whole)[metric.indexable(vectors[whole])]
        yield vectors[kept], addresses[kept]


def sum_table(pin: Pin, task: tuple[View, ScanSlice]) -> Sums:
    """Task: one slice of the table."""
    view, part = task
    sums = Sums.over(part.fragments)
    for addresses, facts in table_rows(pin, view, part):
        sums.add(addresses, facts)
    return sums.filled()


class Answered:
    """Which stored rows count: those a query over the segment would take, in the fragments that are compared."""

    def __init__(self, pin: Pin, subject: Subject) -> None:
        snapshot = pin.open()
        self._locate = None if subject.stores_addresses else snapshot.address_of_id.locate
        self._reuse = read_fragment_reuse(snapshot) if subject.stores_addresses else None
        # By fragment id; the last place stands for all ids beyond.
        self._compared = np.zeros(max(subject.fragments, default=0) + 2, dtype=np.bool_)
        self._compared[list(subject.fragments)] = True
        self._deleted = snapshot.deleted_addresses(BitMap(subject.fragments))

    def locate(self, ids: Addresses) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """Today's address of each stored id, and whether it counts."""
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
    """Set up once per process."""
    return Answered(pin, subject)


def sequence_of(pin: Pin, subject: Subject) -> Sequence:
    snapshot = pin.open()
    return Sequence(snapshot.store, subject.segment, snapshot.column(subject.column).type)


def files_of(pin: Pin, subject: Subject) -> VectorFiles:
    """May raise DamagedFile, also where the vectors are not those of the column."""
    snapshot, segment = pin.open(), subject.segment
    files = VectorFiles(snapshot.store, segment.directory, segment.file_sizes)
    width = snapshot.column(subject.column).type.list_size
    if files.ivf.dim != width:
        where = snapshot.store.describe(segment.directory)
        raise DamagedFile(f"{where} holds vectors of {files.ivf.dim} dimensions, the column of {width}")
    return files


def _check_files(pin: Pin, segment: IndexSegment) -> None:
    """Files the manifest names. A store that tells no sizes is believed until a file is read."""
    store = pin.open().store
    there = {path.rpartition("/")[2] for path in store.list(segment.directory)}
    for file in segment.files:
        path = f"{segment.directory}/{file.path}"
        if file.path not in there:
            raise DamagedFile(f"{store.describe(path)} is missing")
        size = store.size(path)
        if size is not None and file.size_bytes and size != file.size_bytes:
            raise DamagedFile(f"{store.describe(path)} has {size} bytes, its index recorded {file.size_bytes}")


def _cut(subject: Subject, weights: npt.NDArray[np.integer]) -> tuple[Piece, ...]:
    reached = np.cumsum(weights)
    if not len(reached):
        return ()
    parts = -(-int(reached[-1]) // ROWS_PER_TASK)
    edges = {0, len(weights), *np.searchsorted(reached, np.arange(1, parts) * ROWS_PER_TASK).tolist()}
    cuts = sorted(edges)
    return tuple(Piece(subject, a, b) for a, b in pairwise(cuts))


def _joined(run: Run) -> tuple[Addresses, pa.Array]:
    batch = run.to_batch()
    return batch.column(1).to_numpy(), batch.column(0)
