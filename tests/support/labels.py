"""Tables with lists of labels: empty lists, NULL lists, NULL elements, repeated labels, several element types."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

DAY = dt.date(2026, 1, 1)
LABELS = ("a", "b", "c", "d", "é'%")

# What an index of labels answers, by column.
LABEL_FILTERS: dict[str, list[str]] = {
    "tags": [
        "array_has(tags, 'a')",
        "array_contains(tags, 'b')",
        "array_has(tags, 'nowhere')",
        "array_has(tags, 'é''%')",
        "array_has_any(tags, ['a', 'b'])",
        "array_has_any(tags, ['a', 'a'])",
        "array_has_any(tags, ['nowhere', NULL])",
        "array_has_all(tags, ['a', 'b'])",
        "array_has_all(tags, ['a', NULL])",
        "array_has_all(tags, ['a', 'nowhere'])",
        "NOT array_has(tags, 'a')",
        "NOT array_has(tags, 'nowhere')",
        "NOT array_has_any(tags, ['a', 'b', NULL])",
        "NOT array_has_all(tags, ['a', 'b'])",
        "NOT array_has_all(tags, ['a', NULL])",
        "array_has(tags, 'a') AND NOT array_has(tags, 'b')",
        "array_has(tags, 'a') OR array_has(tags, 'd')",
        "NOT (array_has(tags, 'a') AND array_has(tags, 'b'))",
        "tags IS NULL",
        "tags IS NOT NULL",
        "tags IS NULL OR array_has(tags, 'a')",
        "tags IS NOT NULL AND NOT array_has(tags, 'a')",
    ],
    "large_tags": [
        "array_has(large_tags, 'a')",
        "NOT array_has_any(large_tags, ['a', 'c'])",
        "large_tags IS NULL",
    ],
    "numbers": [
        "array_has(numbers, 2)",
        "array_has_any(numbers, [1, 400])",
        "array_has_all(numbers, [1, 2])",
        "NOT array_has(numbers, 3)",
        "numbers IS NOT NULL",
    ],
}


def label_table(rows: int, seed: int = 0, start: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)

    def lists(values: tuple[Any, ...]) -> list[list[Any] | None]:
        return [
            None
            if rng.random() < 0.1
            else [None if rng.random() < 0.08 else values[n] for n in rng.integers(0, len(values), rng.integers(0, 5))]
            for _ in range(rows)
        ]

    return pa.table(
        {
            "id": pa.array(np.arange(start, start + rows)),
            "k": pa.array(rng.integers(0, 10, rows)),
            "tags": pa.array(lists(LABELS), pa.list_(pa.string())),
            "large_tags": pa.array(lists(LABELS), pa.large_list(pa.large_string())),
            "numbers": pa.array(lists((0, 1, 2, 3, 7)), pa.list_(pa.int64())),
            "floats": pa.array(lists((0.0, -0.0, float("nan"), 1.5)), pa.list_(pa.float64())),
            "flags": pa.array(lists((True, False)), pa.list_(pa.bool_())),
            "days": pa.array(lists((DAY, DAY + dt.timedelta(days=3))), pa.list_(pa.date32())),
        }
    )


def write_labels(path: Path, rows: int = 2000, rows_per_file: int = 400, **options: Any) -> str:
    """A table of several fragments with deletions in some and one deleted whole."""
    uri = str(path)
    dataset = lance.write_dataset(label_table(rows), uri, max_rows_per_file=rows_per_file, **options)
    dataset.delete("id % 13 = 5")
    dataset.delete(f"id >= {rows_per_file} and id < {2 * rows_per_file}")
    return uri
