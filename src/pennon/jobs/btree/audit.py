"""The audit of a B-tree: compares every value, by page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.btree.pages import Run
from pennon.index.btree.row_sequence import Cut, Sequence, Stretch
from pennon.jobs.audit.checksums import Facts, facts_of
from pennon.jobs.audit.targets import Piece, Subject, View, answered_by
from pennon.jobs.kinds import ExactAudit


@dataclass(frozen=True)
class BTreeAudit(ExactAudit):
    scalar: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        lookup = _sequence_of(pin, subject).lookup
        return np.full(lookup.pages, lookup.batch_size), View(subject.column, read_values)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        answered, sequence = answered_by(pin, piece.subject), _sequence_of(pin, piece.subject)
        for run in sequence.read(Stretch(Cut(piece.start), Cut(piece.stop))):
            ids, values = _joined(run)
            addresses, kept = answered.locate(ids)
            yield addresses[kept], facts_of(addresses[kept], values.filter(pa.array(kept)))


def read_values(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """Every value of the column."""
    snapshot = pin.open()
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        yield addresses, facts_of(addresses, values)


def _sequence_of(pin: Pin, subject: Subject) -> Sequence:
    snapshot = pin.open()
    return Sequence(snapshot.store, subject.segment, snapshot.column(subject.column).type)


def _joined(run: Run) -> tuple[Addresses, pa.Array]:
    batch = run.to_batch()
    return batch.column(1).to_numpy(), batch.column(0)
