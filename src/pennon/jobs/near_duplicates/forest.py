"""Groups of rows that pairs connect, as a forest: every row but the first of its group with that first row.

A forest has at most one edge for each row, for any number of pairs. Forests of several tasks are merged to one.
"""

from __future__ import annotations

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.vector.vectors import Positions

# Edges that are kept before they are reduced to a forest.
MOST_EDGES = 1 << 21


class Forest:
    """Addresses of rows, and which are connected."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Addresses, Addresses]] = []
        self._edges = 0
        self._most = MOST_EDGES

    def connect(self, first: Addresses, second: Addresses) -> None:
        """Rows at the same places are in one group."""
        self._waiting.append((first, second))
        self._edges += len(first)
        if self._edges > self._most:
            self._most = max(MOST_EDGES, 2 * len(self.edges()[0]))

    def edges(self) -> tuple[Addresses, Addresses]:
        """The rows that are not the first of their group, ascending, and the first of their group."""
        # Imported here, so that programs without near-duplicates load no kernels.
        from pennon.index.vector.union_kernels import first_of_group  # noqa: PLC0415

        none = np.empty(0, dtype=np.uint64)
        first = np.concatenate([none, *(some for some, _ in self._waiting)])
        second = np.concatenate([none, *(some for _, some in self._waiting)])
        rows, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        roots = first_of_group(len(rows), places[: len(first)], places[len(first) :])
        others = np.flatnonzero(roots != np.arange(len(rows)))
        found = rows[others], rows[roots[others]]
        self._waiting, self._edges = [found], len(others)
        return found

    def groups(self) -> tuple[Addresses, Addresses, Positions]:
        """All rows, group by group with the first row first, the first of the group of each, and the size of that."""
        others, roots = self.edges()
        firsts, counts = np.unique(roots, return_counts=True)
        rows, own = np.concatenate([firsts, others]), np.concatenate([firsts, roots])
        order = np.lexsort((rows, own))
        sizes = counts[np.searchsorted(firsts, own[order])] + 1
        return rows[order], own[order], sizes
