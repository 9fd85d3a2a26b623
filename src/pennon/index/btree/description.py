"""A B-tree segment for the report."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.btree.lookup import PageLookup
from pennon.index.description import Chart, Description, in_order, skew


def describe_lookup(lookup: PageLookup) -> Description:
    """Ranges and pages. Many pages with a single value indicate a frequent value."""
    sizes = np.array([file.pages for file in lookup.files], dtype=np.int64)
    single, with_nulls = _of_one_value(lookup), int(np.count_nonzero(lookup.null_counts))
    measures = {
        "pages": lookup.pages,
        "ranges": len(sizes),
        "pages_with_nulls": with_nulls,
        "pages_of_one_value": single,
        "range_skew": skew(sizes) if len(sizes) else 1.0,
    }
    parameters = (("rows per page", f"{lookup.batch_size:,}"), ("ranges", f"{len(sizes):,}"))
    if not lookup.pages:
        chart = Chart("Pages", "Pages", "None: no row had to be indexed.")
    elif len(sizes) == 1:
        chart = Chart("Pages", "Pages", "")
    else:
        chart = Chart(
            "Pages of each range",
            "Pages of each range",
            f"The largest range has {measures['range_skew']:.2f} times the mean.",
            in_order(sizes.tolist(), "range", "page"),
            ("lowest values", "highest"),
        )
    return Description(parameters, measures, chart)


def _of_one_value(lookup: PageLookup) -> int:
    low, high = lookup.mins, lookup.maxs
    if pa.types.is_float16(low.type):  # Arrow does not compare half floats
        low, high = low.cast(pa.float32()), high.cast(pa.float32())
    return int(pc.sum(pc.equal(low, high)).as_py() or 0)
