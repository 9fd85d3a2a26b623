"""Fragments as the columns of a picture: one each, or neighbors together where a table has very many. A column is as
wide as its share of the live rows, so that widths in the picture are the shares that queries see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pennon.format.manifest import Manifest

MAX_COLUMNS = 120
# In percent; two pixels on a laptop.
THINNEST = 0.25

Shares = tuple[float, ...]


@dataclass(frozen=True)
class Column:
    """A run of live fragments; `rows` are the stored ones, deleted or not."""

    first: int
    last: int
    fragments: int
    rows: int
    deleted: int

    @property
    def live(self) -> int:
        return self.rows - self.deleted

    @property
    def label(self) -> str:
        if self.fragments == 1:
            return f"fragment {self.first}"
        return f"{self.fragments:,} fragments, {self.first} to {self.last}"


@dataclass(frozen=True)
class Scale:
    """Where columns begin and end, in percent of the picture's width."""

    edges: tuple[float, ...]

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Scale:
        """By live rows; columns are alike where there are none."""
        rows = np.array([column.live for column in columns], dtype=np.float64)
        total = rows.sum()
        widths = 100 * rows / total if total else np.full(len(columns), 100 / max(1, len(columns)))
        return cls((0.0, *np.minimum(np.cumsum(widths), 100.0).tolist()))

    def span(self, first: int, last: int) -> tuple[float, float]:
        """Left end and width of some columns. What has next to no rows is drawn at least as a thin line."""
        left, right = self.edges[first], self.edges[last + 1]
        width = max(right - left, THINNEST)
        return min(left, 100 - width), width

    def middle(self, column: int) -> float:
        return (self.edges[column] + self.edges[column + 1]) / 2


@dataclass(frozen=True, eq=False)
class Grid:
    """Live fragments in the order of their ids, `width` of them a column."""

    manifest: Manifest
    width: int

    @classmethod
    def of(cls, manifest: Manifest, max_columns: int = MAX_COLUMNS) -> Grid:
        return cls(manifest, max(1, -(-len(manifest.fragments) // max_columns)))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        fragments = [self.manifest.fragments[f] for f in self._ids.tolist()]
        runs = [fragments[at : at + self.width] for at in range(0, len(fragments), self.width)]
        return tuple(
            Column(
                run[0].id,
                run[-1].id,
                len(run),
                sum(f.physical_rows for f in run),
                sum(f.num_deleted_rows for f in run),
            )
            for run in runs
        )

    def shares(self, fragments: Iterable[int]) -> Shares:
        """How much of each column these fragments make up, by live rows."""
        places = np.flatnonzero(np.isin(self._ids, np.fromiter(fragments, np.int64)))
        return tuple((self._sum(places) / self._sum(np.arange(len(self._ids)))).tolist())

    def _sum(self, places: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        sums = np.bincount(places // self.width, self._weights[places], minlength=len(self.columns))
        return sums.astype(np.float64, copy=False)

    @cached_property
    def _ids(self) -> npt.NDArray[np.int64]:
        return np.array(BitMap(self.manifest.fragments).to_array(), dtype=np.int64)

    @cached_property
    def _weights(self) -> npt.NDArray[np.floating[Any]]:
        """A fragment without live rows still weighs something, or a column of such ones would have no shares."""
        live = [self.manifest.fragments[f].live_rows for f in self._ids.tolist()]
        return np.maximum(np.array(live, dtype=np.float64), 1e-6)
