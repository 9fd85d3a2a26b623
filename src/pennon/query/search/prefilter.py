"""The rows a search may answer: those its filter selects, found by scalar indices and scans; or, where the filter comes
after the search, by a look at the rows found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from pennon.format.addresses import Addresses
from pennon.format.row_set import RowSet
from pennon.format.rows import ADDRESS, ScannedRows
from pennon.format.snapshot import Snapshot
from pennon.index.vector.vectors import Mask, Positions, Vectors
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import read_filter
from pennon.query.scan.execute import filter_errors
from pennon.query.scan.planner import Answer, Planner
from pennon.query.search.live_rows import LiveRows


class Kept(Protocol):
    """Vectors that have distances, and the addresses of their rows, which later searches measure again."""

    def get(self) -> tuple[Vectors, Addresses] | None: ...

    def put(self, batches: list[tuple[Vectors, Addresses]]) -> None: ...


@dataclass(frozen=True, eq=False)
class ScanPart:
    """Rows to be read: all of some fragments, or those that were found, of which a filter selects some if one is
    given. Vectors of `kept` parts are remembered."""

    fragments: BitMap
    found: RowSet | None = None
    filter: str | None = None
    kept: Kept | None = None

    @property
    def rows(self) -> ScannedRows:
        """As a scanner takes them."""
        return dict.fromkeys(self.fragments) if self.found is None else self.found.by_fragment


@dataclass(frozen=True, eq=False)
class Selection:
    """The rows that a filter selects of what an index covers, as a set by fragment. Partitions test their rows against
    it: no row of a partition that is not probed is looked up."""

    rows: RowSet
    count: int
    _flags: dict[object, tuple[Mask, int]] = field(default_factory=dict, repr=False)
    _counts: dict[object, Positions] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, rows: RowSet) -> Selection:
        return cls(rows, len(rows))

    def flags(self, token: object, make: Callable[[], Mask]) -> tuple[Mask, int]:
        """Of the rows of a segment, and how many are set; made once for all blocks of queries."""
        found = self._flags.get(token)
        if found is None:
            flags = make()
            found = self._flags[token] = flags, int(np.count_nonzero(flags))
        return found

    def counts(self, live: LiveRows, count: Callable[[Mask], Positions]) -> Positions:
        """How many rows of each partition are selected, which `count` counts by their flags; once as well."""
        found = self._counts.get(live.token)
        if found is None:
            found = self._counts[live.token] = count(self.flags(live.token, lambda: live.flags(self.rows))[0])
        return found


@dataclass(frozen=True, eq=False)
class Prefilter:
    snapshot: Snapshot
    filter: str
    answer: Answer

    @classmethod
    def of(cls, catalog: Catalog, filter: str, *, search: bool = True) -> Prefilter:
        """`search=False` only plans."""
        # Addresses alone are asked for, so that what the planner knows of the cost of rows does not apply.
        read = read_filter(filter, catalog.snapshot.column_types)
        return cls(catalog.snapshot, read.sql, Planner(catalog, read.node, need_rows=False).answer(search))

    def parts(self, fragments: BitMap) -> list[ScanPart]:
        """The selected rows of some fragments, as scans that find them."""
        indexed, scanned = self.answer.indexed, self.answer.scanned & fragments
        parts: list[ScanPart] = []
        if named := indexed.fragments & fragments:
            parts.append(ScanPart(named, indexed.rows.within(named), None if indexed.exact else self.filter))
        if scanned:
            parts.append(ScanPart(scanned, None, self.filter))
        return parts

    def addresses(self, fragments: BitMap) -> Addresses:
        """The selected rows of some fragments, ascending."""
        pieces: list[Addresses] = []
        for part in self.parts(fragments):
            if part.found is not None and part.filter is None:
                pieces.append(part.found.addresses())
            else:
                pieces += self._scanned(part)
        if len(pieces) == 1:
            return pieces[0]
        found = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint64)
        return found if (found[1:] >= found[:-1]).all() else np.sort(found)

    def rows(self, fragments: BitMap) -> RowSet:
        """The selected rows of some fragments, all of them listed."""
        found = RowSet.none()
        for part in self.parts(fragments):
            if part.found is not None and part.filter is None:
                found |= part.found
            else:
                found |= RowSet.of_addresses(np.concatenate([np.empty(0, dtype=np.uint64), *self._scanned(part)]))
        return found

    def _scanned(self, part: ScanPart) -> list[Addresses]:
        return _scanned(self.snapshot, part)


def selected_of(catalog: Catalog, filter: str, addresses: Addresses) -> Addresses:
    """Those of some rows that a filter selects, ascending. No index is asked: the rows are few."""
    read, snapshot = read_filter(filter, catalog.snapshot.column_types), catalog.snapshot
    rows = RowSet.of_addresses(np.unique(addresses))
    pieces = _scanned(snapshot, ScanPart(snapshot.manifest.live, rows, read.sql)) if len(rows) else []
    return pieces[0] if pieces else np.empty(0, dtype=np.uint64)


def _scanned(snapshot: Snapshot, part: ScanPart) -> list[Addresses]:
    scanner = snapshot.scanner(part.rows, columns=[], with_row_address=True, filter=part.filter)
    with filter_errors(part.filter):
        found = [batch.column(ADDRESS).to_numpy() for batch in scanner.to_batches()]
    return [np.sort(np.concatenate(found))] if found else []
