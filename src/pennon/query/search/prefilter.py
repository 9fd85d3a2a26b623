"""The rows a search may answer: those its filter selects, found by scalar indices and scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pennon.format.addresses import Addresses, in_fragments, split_by_fragment
from pennon.format.snapshot import ADDRESS, Snapshot
from pennon.query.catalog import Catalog
from pennon.query.scan.execute import filter_errors, parse
from pennon.query.scan.planner import Answer, Planner


@dataclass(frozen=True, eq=False)
class ScanPart:
    """Rows to be read: all of some fragments, or those at (ascending) addresses, where a filter still holds if one is
    given."""

    fragments: BitMap
    addresses: Addresses | None = None
    filter: str | None = None

    @property
    def rows(self) -> Mapping[int, npt.NDArray[np.uint32] | None]:
        """As a scanner takes them."""
        return dict.fromkeys(self.fragments) if self.addresses is None else split_by_fragment(self.addresses)


@dataclass(frozen=True, eq=False)
class Prefilter:
    snapshot: Snapshot
    filter: str
    answer: Answer

    @classmethod
    def of(cls, catalog: Catalog, filter: str, *, search: bool = True) -> Prefilter:
        """`search=False` only plans."""
        # Addresses alone are asked for, so that what the planner knows of the cost of rows does not apply.
        planner = Planner(catalog, parse(catalog.snapshot, filter), need_rows=False)
        return cls(catalog.snapshot, filter, planner.answer(search))

    def parts(self, fragments: BitMap) -> list[ScanPart]:
        """The selected rows of some fragments, as scans that find them."""
        indexed, scanned = self.answer.indexed, self.answer.scanned & fragments
        parts: list[ScanPart] = []
        if named := indexed.fragments & fragments:
            addresses = in_fragments(indexed.addresses, named)
            parts.append(ScanPart(named, addresses, None if indexed.exact else self.filter))
        if scanned:
            parts.append(ScanPart(scanned, None, self.filter))
        return parts

    def addresses(self, fragments: BitMap) -> Addresses:
        """The selected rows of some fragments, ascending."""
        pieces: list[Addresses] = []
        for part in self.parts(fragments):
            pieces += [part.addresses] if part.addresses is not None and part.filter is None else self._scanned(part)
        if len(pieces) == 1:
            return pieces[0]
        found = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint64)
        return found if (found[1:] >= found[:-1]).all() else np.sort(found)

    def _scanned(self, part: ScanPart) -> list[Addresses]:
        scanner = self.snapshot.scanner(part.rows, columns=[], with_row_address=True, filter=part.filter)
        with filter_errors(part.filter):
            found = [batch.column(ADDRESS).to_numpy() for batch in scanner.to_batches()]
        return [np.sort(np.concatenate(found))] if found else []
