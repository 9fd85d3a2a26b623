"""Scalar kinds on a real Spark session: built by several tasks, a delta, a merge and a compaction that remaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.testing.oracles import full_scans, pylance_answer
from tests.support.geometries import POSITION, rectangle
from tests.support.texts import WORDS

ROWS, FRAGMENT, APPENDED = 1600, 400, 200

# Column, options that make several tasks, and filters that Pennon and pylance answer by the index.
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "BITMAP": ("k", {"rows_per_task": 300}, ("k = 7", "k < 3", "k is null", "k != 5")),
    "LABEL_LIST": (
        "l",
        {"rows_per_task": 300},
        ("array_has(l, 'Index')", "array_has_all(l, ['range', 'ab'])", "NOT array_has_any(l, ['LANCE', 'x9y'])"),
    ),
    "ZONEMAP": (
        "id",
        {"rows_per_task": 300, "rows_per_zone": 64},
        ("id between 390 and 410", "id in (3, 700, 1650)", "id >= 1590"),
    ),
    "BLOOMFILTER": ("s", {"rows_per_task": 300, "number_of_items": 64}, ("s = 'range 7'", "s in ('ab 10', 'x9y 11')")),
    "RTREE": (
        "p",
        {"rows_per_task": 300, "page_size": 32},
        (f"st_intersects(p, {rectangle(0, 0, 5, 9)})", f"st_within(p, {rectangle(-1, -1, 3, 30)})", "p is null"),
    ),
    "NGRAM": ("s", {"rows_per_task": 300}, ("contains(s, 'artit')", "s like 'range%'", "contains(s, 'dex 13')")),
}


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    words = [WORDS[n * 7 % len(WORDS)] for n in numbers]
    points = [None if n % 41 == 7 else {"x": n * 7 % 40 / 2, "y": n * 11 % 60 / 2} for n in numbers]
    geometry = pa.field("p", POSITION, metadata={"ARROW:extension:name": "geoarrow.point"})
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "k": pa.array([None if n % 31 == 4 else n % 19 for n in numbers], pa.int32()),
            "s": [None if n % 37 == 6 else f"{word} {n % 50}" for n, word in zip(numbers, words, strict=True)],
            "l": pa.array(
                [None if n % 29 == 5 else [word, "ab"][: n % 3] for n, word in zip(numbers, words, strict=True)],
                pa.list_(pa.string()),
            ),
        }
    )
    return table.append_column(geometry, pa.array(points, POSITION))


@pytest.mark.parametrize("kind", CASES)
def test_a_life_on_spark(engine: SparkEngine, tmp_path: Path, kind: str) -> None:
    column, options, filters = CASES[kind]
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, ROWS), uri, max_rows_per_file=FRAGMENT)
    lance.dataset(uri).delete("id % 13 = 5")
    table = pennon.open(uri)
    assert table.plan_index(column, kind, **options).tasks > 1
    table.create_index(column, kind, **options)
    check(uri, filters)
    lance.write_dataset(rows(ROWS, APPENDED), uri, mode="append")
    table.optimize_indices(num_indices_to_merge=0)
    assert len(segments(uri)) == 2
    check(uri, filters)
    table.optimize_indices(num_indices_to_merge=9)
    assert len(segments(uri)) == 1
    lance.dataset(uri).delete("id % 17 = 3")
    table.compact(target_rows_per_fragment=5000)
    assert len(lance.dataset(uri).get_fragments()) == 1
    check(uri, filters)
    assert pennon.open(uri).audit().ok


def segments(uri: str) -> list[Any]:
    [index] = pennon.open(uri).indices()
    return list(index.segments)


def check(uri: str, filters: tuple[str, ...]) -> None:
    """Pennon and pylance use the index, which covers all rows, and find what a scan finds."""
    table = pennon.open(uri)
    for filter, expected in full_scans(lance.dataset(uri), filters).items():
        explained = table.explain(filter)
        assert explained.indices, filter
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        found, used = pylance_answer(uri, filter)
        assert found == expected, filter
        assert used, filter
