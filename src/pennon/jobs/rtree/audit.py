"""The audit of an R-tree: compares the box of every row, and the boxes around pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.rtree.files import TreeFile
from pennon.index.rtree.geometries import Boxes, boxes_of
from pennon.jobs.audit.checksums import NULL, Facts, facts_of_hashes, mixed
from pennon.jobs.audit.targets import Piece, Subject, View, answered_by
from pennon.jobs.kinds import ExactAudit

# Rows of a column that are read at once: a geometry may have thousands of positions.
BATCH_ROWS = 1 << 13
# NULLs located at once.
MOST_NULLS = 1 << 20


@dataclass(frozen=True)
class RTreeAudit(ExactAudit):
    scalar: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        file = TreeFile(pin.open().store, subject.segment)
        file.check_levels()
        # The last part is that of the NULLs.
        return np.full(file.leaf_pages + 1, file.page_size), View(subject.column, read_boxes)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        answered, file = answered_by(pin, piece.subject), TreeFile(pin.open().store, piece.subject.segment)
        for page, leaves in file.leaves(piece.start, min(piece.stop, file.leaf_pages)):
            file.check_leaves(page, leaves)
            addresses, kept = answered.locate(leaves.ids)
            yield addresses[kept], _facts(addresses[kept], leaves.boxes[kept])
        if piece.stop > file.leaf_pages:
            for some in file.read_nulls().pieces(MOST_NULLS):
                addresses, kept = answered.locate(some.addresses())
                yield addresses[kept], facts_of_hashes(addresses[kept], NULL)


def read_boxes(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """The box of every geometry but empty ones, and every NULL."""
    snapshot = pin.open()
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part, BATCH_ROWS):
        boxes, found = boxes_of(values)
        missing = addresses[values.is_null().to_numpy(zero_copy_only=False)]
        yield addresses[found], _facts(addresses[found], boxes[found])
        yield missing, facts_of_hashes(missing, NULL)


def _facts(addresses: Addresses, boxes: Boxes) -> Facts:
    hashed = np.zeros(len(boxes), dtype=np.uint64)
    for at in range(4):
        # Zeros of either sign are the same bound.
        hashed = mixed(hashed + (boxes[:, at] + 0.0).view(np.uint64))
    return facts_of_hashes(addresses, hashed)
