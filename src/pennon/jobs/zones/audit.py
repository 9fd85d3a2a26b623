"""The audit of zones: every live row must be in a zone whose summary allows its value.

A row's fact is its address and whether it is NULL. The answer of the segment is found by looking up every row of the
table in its zone: a row that queries would miss is left out, and whether it is NULL is taken from the segment, as
pylance does, which believes old NULLs where Pennon does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pennon.format.addresses import Addresses, offset_of
from pennon.format.row_set import offsets_of
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.zones.kind import ZonesKind
from pennon.index.zones.segment import ZoneSegment
from pennon.jobs.audit.checksums import NULL, Facts, facts_of_hashes
from pennon.jobs.audit.targets import Piece, Subject, View
from pennon.jobs.kinds import ExactAudit

# Bytes of filters that a task caches, so that fragments that share some do not read them again.
CACHED_BYTES = 64 << 20


@dataclass(frozen=True)
class ZonesAudit(ExactAudit):
    kind: ZonesKind
    scalar: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        _opened(pin, self.kind, subject)
        fragments = pin.open().manifest.fragments
        rows = np.array([fragments[f].physical_rows for f in subject.fragments], dtype=np.int64)
        return rows, View(subject.column, read_places)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        snapshot, subject = pin.open(), piece.subject
        opened = _opened(pin, self.kind, subject)
        column = snapshot.column(subject.column)
        for fragment in list(subject.fragments)[piece.start : piece.stop]:
            nulls = opened.nulls_of(fragment)
            for values, addresses in snapshot.scan_column(column, ScanSlice((fragment,))):
                zones = opened.zone_of(addresses)
                inside = np.flatnonzero(zones >= 0)
                rows, found = addresses[inside], values.take(pa.array(inside))
                # Without a record of NULLs, only the summaries of their zones can be compared.
                is_null = _is_null(found) if nulls is None else np.isin(offset_of(rows), nulls)
                # A row with a recorded NULL is found as one, even if its zone rules the value out.
                held = opened.segment.allows(zones[inside], found) | is_null
                yield rows[held], _facts(rows[held], is_null[held])


def read_places(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """Every row of the column, and whether it is NULL."""
    snapshot = pin.open()
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        yield addresses, _facts(addresses, _is_null(values))


def _is_null(values: pa.Array) -> npt.NDArray[np.bool_]:
    return pc.is_null(values).to_numpy(zero_copy_only=False)


def _facts(addresses: Addresses, is_null: npt.NDArray[np.bool_]) -> Facts:
    return facts_of_hashes(addresses, np.where(is_null, NULL, np.uint64(0)))


class _Opened:
    """A segment's zones by current addresses."""

    def __init__(self, pin: Pin, kind: ZonesKind, subject: Subject) -> None:
        snapshot = pin.open()
        reuse = read_fragment_reuse(snapshot)
        self.segment: ZoneSegment = kind.open(
            snapshot, subject.segment, snapshot.column(subject.column), reuse, ByteCache(CACHED_BYTES)
        )
        starts, lengths, numbers = self.segment.zones.starts, self.segment.zones.lengths, None
        if reuse is not None:
            starts, lengths, numbers = reuse.address_map.apply_ranges(starts, lengths)
        order = np.argsort(starts, kind="stable")
        self._starts, self._stops = starts[order], (starts + lengths)[order]
        self._numbers = order if numbers is None else numbers[order]
        self._nulls = self.segment.null_rows_of_pylance() if self.segment.has_null_map else None

    def zone_of(self, addresses: Addresses) -> npt.NDArray[np.intp]:
        """The number of each row's zone in the file; -1 if it has none."""
        if not len(self._starts):
            return np.full(len(addresses), -1)
        at = np.searchsorted(self._starts, addresses, "right") - 1
        there = (at >= 0) & (addresses < self._stops[at])
        return np.where(there, self._numbers[at], -1)

    def nulls_of(self, fragment: int) -> npt.NDArray[np.uint32] | None:
        """Offsets of the recorded NULLs of a fragment; None if they are not recorded."""
        return None if self._nulls is None else offsets_of(self._nulls.by_fragment.get(fragment) or BitMap())


@lru_cache(maxsize=8)
def _opened(pin: Pin, kind: ZonesKind, subject: Subject) -> _Opened:
    """Opened once per process."""
    return _Opened(pin, kind, subject)
