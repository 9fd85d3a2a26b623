"""A valid file of another segment of the same index, as a wrong copy puts it there: damage, never an answer."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.format.segment_contents import CONTENTS_FILE
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.vectors import to_lists
from tests.hostile.mutations import record_size
from tests.support.geometries import POSITION

pytestmark = pytest.mark.usefixtures("process_engine")
COLUMNS = {
    "BTREE": "i",
    "BITMAP": "i",
    "LABEL_LIST": "tags",
    "ZONEMAP": "i",
    "BLOOMFILTER": "i",
    "NGRAM": "text",
    "INVERTED": "text",
    "RTREE": "p",
}
AROUND_3 = "st_geomfromtext('POLYGON((2.5 2.5, 3.5 2.5, 3.5 3.5, 2.5 3.5, 2.5 2.5))')"
FILTERS = {
    "i": "i = 3",
    "tags": "array_has(tags, 't3')",
    "text": "contains(text, 'number 3')",
    "p": f"st_intersects(p, {AROUND_3})",
}


def rows(first: int) -> pa.Table:
    numbers = np.arange(first, first + 200) % 7
    table = pa.table(
        {
            "i": numbers,
            "tags": [[f"t{n}"] for n in numbers],
            "text": [f"the number {n} of row {first + row * (first + 1)}" for row, n in enumerate(numbers)],
            "v": to_lists(np.random.default_rng(first).standard_normal((200, 8), dtype=np.float32)),
        }
    )
    points = pa.StructArray.from_arrays([pa.array(numbers, pa.float64())] * 2, fields=list(POSITION))
    return table.append_column(pa.field("p", POSITION, metadata={"ARROW:extension:name": "geoarrow.point"}), points)


@pytest.mark.parametrize("kind", [*COLUMNS, "IVF_FLAT", "IVF_SQ"])
def test_files_of_another_segment(tmp_path: Path, kind: str) -> None:
    uri, column = str(tmp_path / "t.lance"), COLUMNS.get(kind, "v")
    old, new = two_segments(uri, column, kind)
    # Kinds with several files record in one what the others are; partitions of texts have names of their own.
    both = [file for file in old.iterdir() if (new / file.name).exists() and file.name != CONTENTS_FILE]
    largest = max(both, key=lambda file: file.stat().st_size)
    shutil.copyfile(largest, new / largest.name)
    record_size(Path(uri), new / largest.name)
    check_answer(uri, column, kind)


@pytest.mark.parametrize("kind", [*COLUMNS, "IVF_FLAT", "IVF_SQ"])
def test_all_files_of_another_segment(tmp_path: Path, kind: str) -> None:
    """Checksums included, but without the list of contents, which names its segment."""
    uri, column = str(tmp_path / "t.lance"), COLUMNS.get(kind, "v")
    old, new = two_segments(uri, column, kind)
    for file in old.iterdir():
        if file.name != CONTENTS_FILE:
            shutil.copyfile(file, new / file.name)
            record_size(Path(uri), new / file.name)
    check_answer(uri, column, kind)
    pennon.open(uri).optimize_indices()
    table = pennon.open(uri)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedIndexWarning)
        found = answer(table, column, kind)
    assert found == (400 if kind == "INVERTED" else answer(table, column, kind, use_index=False))


def check_answer(uri: str, column: str, kind: str) -> None:
    SHARED_CACHE.clear()
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning):
        found = answer(table, column, kind)
    assert found == (400 if kind == "INVERTED" else answer(table, column, kind, use_index=False))


def two_segments(uri: str, column: str, kind: str) -> tuple[Path, Path]:
    """The directories of two segments of one index."""
    lance.write_dataset(rows(0), uri)
    pennon.open(uri).create_index(column, kind, **({"num_partitions": 2} if column == "v" else {}))
    lance.write_dataset(rows(1000), uri, mode="append")
    table = pennon.open(uri)
    table.optimize_indices(num_indices_to_merge=0)
    [index] = table.indices()
    old, new = (Path(uri) / "_indices" / segment.uuid for segment in index.segments)
    return old, new


def answer(table: pennon.Table, column: str, kind: str, *, use_index: bool = True) -> object:
    if kind == "INVERTED":
        return table.search_text(column, "number", 500).num_rows
    if column == "v":
        nearest = table.search("v", [0.0] * 8, 10, nprobes=2, columns=["_rowid"], use_index=use_index)
        return nearest["_rowid"].to_pylist()
    if use_index:
        return table.count(FILTERS[column])
    # Points are those of `i`; only an R-tree finds them.
    return (
        lance.dataset(table.uri)
        .scanner(filter=FILTERS[column if column != "p" else "i"], use_scalar_index=False)
        .count_rows()
    )
