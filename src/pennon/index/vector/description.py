"""A vector segment for the report."""

from __future__ import annotations

import numpy as np

from pennon.index.description import Chart, Description, histogram, skew
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.files.storage import VectorFiles
from pennon.wording import plural


def describe_files(files: VectorFiles, details: bytes) -> Description:
    """Parameters come from the files; only the manifest records those of the graph."""
    return Description(_parameters(files, details), *_partitions(files))


def _parameters(files: VectorFiles, details: bytes) -> tuple[tuple[str, str], ...]:
    own, recorded = VectorDetails.of(files.kind, files.quantizer), VectorDetails.from_bytes(details)
    shown = [("metric", files.metric.value), ("partitions", f"{files.ivf.num_partitions:,}")]
    shown.append(("dimensions", f"{files.ivf.dim:,}"))
    if own.num_sub_vectors:
        shown.append(("sub-vectors", f"{own.num_sub_vectors:,}"))
    if own.num_bits:
        shown.append(("bits", str(own.num_bits)))
    if recorded and recorded.hnsw:
        shown += [("m", str(recorded.hnsw.m)), ("ef_construction", str(recorded.hnsw.ef_construction))]
    return tuple(shown)


def _partitions(files: VectorFiles) -> tuple[dict[str, int | float], Chart]:
    lengths = files.layout.lengths
    rows, count = int(lengths.sum()), len(lengths)
    squares = float((lengths.astype(np.float64) ** 2).sum())
    empty = int(np.count_nonzero(lengths == 0))
    measures: dict[str, int | float] = {
        "partitions": count,
        "rows": rows,
        "empty_partitions": empty,
        "median_rows": int(np.median(lengths)) if count else 0,
        "largest_rows": int(lengths.max(initial=0)),
        "skew": skew(lengths) if count else 1.0,
        # Rows that a probe reads, relative to partitions of equal size.
        "imbalance": squares * count / rows**2 if rows else 1.0,
    }
    bars = histogram(lengths, "partition", "row")
    mean = rows / count if count else 0.0
    chart = Chart(
        f"{plural(count, 'partition')} by size",
        "Partitions by number of rows",
        f"The largest has {measures['skew']:.1f} times the mean of {mean:,.0f} rows. A probe reads "
        f"{measures['imbalance']:.2f} times the rows of partitions of equal size.",
        bars,
        ("0 rows", f"{int(lengths.max(initial=0)):,} rows"),
    )
    return measures, chart
