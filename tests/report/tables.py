"""Small tables in the states that a report is about, made by stock pylance alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

HOSTILE = "<script>alert('1')</script> \"ü\" & 'x'"


def rows(start: int, count: int, name: str = "k") -> pa.Table:
    vectors = np.random.default_rng(start).random(8 * count, dtype=np.float32)
    return pa.table(
        {
            "id": range(start, start + count),
            name: [i % 10 for i in range(start, start + count)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 8),
        }
    )


def write(path: Path, count: int = 400, name: str = "k", **options: Any) -> str:
    """Fragments of 100 rows under a B-tree."""
    lance.write_dataset(rows(0, count, name), str(path), max_rows_per_file=100, **options)
    lance.dataset(str(path)).create_scalar_index(name, "BTREE")
    return str(path)


def append(uri: str, start: int, count: int = 50, name: str = "k") -> None:
    lance.write_dataset(rows(start, count, name), uri, mode="append")


def defer(uri: str, target: int = 200) -> None:
    """A compaction that index files do not follow."""
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=target, defer_index_remap=True)
