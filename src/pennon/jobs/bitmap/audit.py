"""The audit of a bitmap index: compares every value of every row, by page.

A row of lists has a fact for each label, and one if the list is NULL; an empty list has none, neither in the index nor
in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.bitmap.files import BitmapFile
from pennon.index.bitmap.kind import BitmapKind
from pennon.index.bitmap.row_map import Maps, listed
from pennon.jobs.audit.checksums import Facts, facts_of, facts_of_hashes
from pennon.jobs.audit.targets import Answered, Piece, Subject, View, answered_by
from pennon.jobs.bitmap.scan import elements_of
from pennon.jobs.kinds import ExactAudit

NULL_LIST = np.uint64(0xD1B5_4A32_D192_ED03)


@dataclass(frozen=True)
class BitmapAudit(ExactAudit):
    kind: BitmapKind
    scalar: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        """The map of NULL lists is a separate part after the pages."""
        file = self._file(pin, subject)
        pages = file.pages
        ids = pages.ids
        if ids is None:
            ids = np.full(
                len(pages.stops), -(-pin.open().manifest.rows_in(BitMap(subject.fragments)) // max(1, len(pages.stops)))
            )
        return np.append(ids, 1), View(subject.column, read_values, self.kind, several=self.kind.over_lists)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        answered, file = answered_by(pin, piece.subject), self._file(pin, piece.subject)
        keys = file.read_keys()
        pages = len(file.pages.stops)
        for page in range(piece.start, min(piece.stop, pages)):
            first = int(file.pages.starts[page])
            for ids, numbers in listed(file.read_page(page), file.where).chunks():
                addresses, kept = answered.locate(ids)
                values = keys.take(pa.array(numbers[kept] + first))
                yield addresses[kept], facts_of(addresses[kept], values)
        if piece.stop > pages and self.kind.over_lists:
            yield from _null_lists(answered, self.kind.list_nulls(file), file.where)

    def _file(self, pin: Pin, subject: Subject) -> BitmapFile:
        snapshot = pin.open()
        key_type = self.kind.key_type(snapshot.column(subject.column).type)
        return BitmapFile.of_segment(snapshot.store, subject.segment, key_type)


def read_values(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """Every value of the column, or every label of each list once."""
    kind = view.detail
    assert isinstance(kind, BitmapKind)
    snapshot = pin.open()
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        if not kind.over_lists:
            yield addresses, facts_of(addresses, values)
            continue
        elements = elements_of(kind.elements(values), values, addresses)
        yield _once(elements.ids, facts_of(elements.ids, elements.values))
        yield elements.list_nulls, facts_of_hashes(elements.list_nulls, NULL_LIST)


def _once(addresses: Addresses, facts: Facts) -> tuple[Addresses, Facts]:
    """A label that a list repeats is one fact."""
    order = np.lexsort((facts, addresses))
    addresses, facts = addresses[order], facts[order]
    fresh = np.ones(len(facts), dtype=np.bool_)
    fresh[1:] = (addresses[1:] != addresses[:-1]) | (facts[1:] != facts[:-1])
    return addresses[fresh], facts[fresh]


def _null_lists(answered: Answered, maps: Maps, where: str) -> Iterator[tuple[Addresses, Facts]]:
    for ids, _ in listed(maps, where).chunks():
        addresses, kept = answered.locate(ids)
        yield addresses[kept], facts_of_hashes(addresses[kept], NULL_LIST)
