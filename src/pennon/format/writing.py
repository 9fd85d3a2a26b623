"""Writing rows as a Lance table."""

from __future__ import annotations

from collections.abc import Iterable

import lance
import pyarrow as pa


def write_table(uri: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows_per_fragment: int) -> None:
    """Create a table."""
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    lance.write_dataset(reader, uri, max_rows_per_file=rows_per_fragment)
