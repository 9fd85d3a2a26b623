"""A segment of an R-tree for the report."""

from __future__ import annotations

import numpy as np

from pennon.index.description import Chart, Description, histogram
from pennon.index.rtree.files import TreeFile

# Pages that are compared with all others. Of a larger tree the overlaps are not computed.
COMPARED_PAGES = 256
MEASURED_PAGES = 1 << 16


def describe_tree(file: TreeFile, nulls: int) -> Description:
    """How large the tree is, and how much its pages overlap: a search reads all pages that have its box."""
    parameters = (("page size", f"{file.page_size:,}"),)
    measures: dict[str, int | float] = {
        "geometries": file.items,
        "nulls": nulls,
        "pages": sum(level.pages for level in file.levels),
        "levels": len(file.levels),
    }
    if len(file.levels) < 2:
        return Description(parameters, measures, Chart("Overlaps", "Overlaps", "There is at most one page of leaves."))
    if file.leaf_pages > MEASURED_PAGES:
        return Description(parameters, measures, Chart("Overlaps", "Overlaps", "Not shown: there are too many pages."))
    boxes = file.read_pages(1, 0, file.levels[1].pages).boxes
    step = -(-len(boxes) // COMPARED_PAGES)
    overlaps = np.array(
        [((boxes[:, :2] <= box[2:]) & (boxes[:, 2:] >= box[:2])).all(axis=1).sum() - 1 for box in boxes[::step]],
        dtype=np.int64,
    )
    measures["overlapping_pages"] = round(float(overlaps.mean()), 2)
    chart = Chart(
        "Overlaps",
        "Pages of leaves by the number of others that they overlap",
        "The fewer pages overlap, the fewer a search reads.",
        histogram(overlaps, "page", "other page"),
        ends=("few", "many"),
    )
    return Description(parameters, measures, chart)
