"""Tables that Pennon and pylance change alike, and what both have in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import pennon
from pennon.table import Table

COLUMNS = ["id", "k", "s", "v", "n"]
VERSIONS = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows(ids: range | list[int], mark: str = "") -> pa.Table:
    """One row for each id, with a column of every sort."""
    values = list(ids)
    return pa.table(
        {
            "id": pa.array(values, pa.int64()),
            "k": pa.array([None if i % 11 == 0 else i % 7 for i in values], pa.int32()),
            "s": pa.array([None if i % 13 == 0 else f"text {i}{mark}" for i in values], pa.string()),
            "v": pa.array([[float(i), 1.0] for i in values], pa.list_(pa.float32(), 2)),
            "n": pa.array([{"a": i, "b": f"b{i % 3}"} for i in values], pa.struct({"a": pa.int64(), "b": pa.string()})),
        }
    )


def twins(directory: Path, count: int = 1000, rows_per_fragment: int = 100, **options: Any) -> tuple[Table, str]:
    """A table for Pennon, with an index on id, and the address of one with the same rows and versions for pylance."""
    ours, theirs = str(directory / "ours.lance"), str(directory / "theirs.lance")
    for uri in (ours, theirs):
        lance.write_dataset(rows(range(count)), uri, max_rows_per_file=rows_per_fragment, **options)
        lance.dataset(uri).delete("id % 10 = 3")
    table = pennon.open(ours)
    table.create_index("id")
    lance.dataset(theirs).create_scalar_index("id", "BTREE")
    return table, theirs


def content(uri: str) -> pa.Table:
    """All rows, by id; with stable row ids also those and the versions of the rows."""
    dataset = lance.dataset(uri)
    columns = COLUMNS + (VERSIONS if dataset.has_stable_row_ids else [])
    return dataset.to_table(columns=columns).sort_by([("id", "ascending"), ("s", "ascending")])


def check(table: Table, theirs: str) -> None:
    """Both tables have the same rows, and the index answers as a scan does."""
    assert content(table.uri) == content(theirs)
    dataset = lance.dataset(table.uri)
    for filter in ("id < 40", "id = 51", "id in (7, 8, 990)"):
        expected = sorted(dataset.to_table(["id"], filter=filter, use_scalar_index=False)["id"].to_pylist())
        assert sorted(dataset.to_table(["id"], filter=filter)["id"].to_pylist()) == expected
        assert sorted(table.refresh().scan(filter, ["id"])["id"].to_pylist()) == expected
    assert table.audit(recall_queries=0).ok


def files(uri: str, *directories: str) -> set[str]:
    """The files in some directories of a table."""
    return {str(path) for name in directories for path in (Path(uri) / name).rglob("*") if path.is_file()}
