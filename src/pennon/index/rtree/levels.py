"""The levels of an R-tree, from the leaves to the root.

Every level is cut into pages of `page_size` boxes, of which only the last may be short. A page of one level is a box of
the next: that around all of its boxes, in the order of the pages. The highest level has one page, the root. Pages are
numbered through all levels, from the leaves on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pennon.index.rtree.geometries import Boxes


@dataclass(frozen=True)
class Level:
    """`rows` boxes from `first_row` of the file on, in `pages` pages from number `first_page` on."""

    first_row: int
    rows: int
    first_page: int
    page_size: int

    @property
    def pages(self) -> int:
        return -(-self.rows // self.page_size)

    def rows_of(self, start: int, stop: int) -> tuple[int, int]:
        """Rows of the file with the pages [start, stop) of the level."""
        return (
            self.first_row + start * self.page_size,
            self.first_row + min(stop * self.page_size, self.rows),
        )

    def lengths(self, start: int, stop: int) -> list[int]:
        """The number of boxes of each of the pages [start, stop)."""
        first, last = self.rows_of(start, stop)
        return [min(self.page_size, last - row) for row in range(first, last, self.page_size)]


def levels_of(items: int, page_size: int) -> list[Level]:
    """The levels of a tree with this many leaves, the leaves first; none without leaves."""
    levels: list[Level] = []
    row, page, rows = 0, 0, items
    while rows:
        level = Level(row, rows, page, page_size)
        levels.append(level)
        row, page = row + rows, page + level.pages
        rows = level.pages if level.pages > 1 else 0
    return levels


def page_boxes(boxes: Boxes, page_size: int) -> Boxes:
    """The box around each page of consecutive boxes."""
    if not len(boxes):
        return np.empty((0, 4))
    cuts = np.arange(0, len(boxes), page_size)
    return np.concatenate(
        [np.minimum.reduceat(boxes[:, :2], cuts, axis=0), np.maximum.reduceat(boxes[:, 2:], cuts, axis=0)], axis=1
    )
