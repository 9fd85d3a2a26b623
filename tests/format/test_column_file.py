"""Short reads of a data file return what a scan returns, whatever happened to the columns since it was written."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location

ROWS = 100


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Three fragments."""
    path = str(tmp_path / "t.lance")
    values = list(range(3 * ROWS))
    table = pa.table({"a": values, "b": [-v for v in values], "s": [f"s{v}" for v in values]})
    noted = pa.field("a", pa.int64(), nullable=False, metadata={"unit": "m"})
    table = table.cast(pa.schema([noted, table.schema.field("b"), table.schema.field("s")], {"made": "here"}))
    lance.write_dataset(table, path, max_rows_per_file=ROWS)
    return path


def read(uri: str, part: ScanSlice, columns: list[str]) -> tuple[pa.Table, bool]:
    """A slice, and whether it was read without a scan."""
    snapshot = Snapshot.open(Location(uri))
    direct = snapshot._read_directly(part, columns)  # pyright: ignore[reportPrivateUsage]
    table = snapshot.read_slice(part, columns)
    assert direct is None or direct == table
    assert table.schema.equals(scanned(uri, part, columns).schema, check_metadata=True)
    return table, direct is not None


def scanned(uri: str, part: ScanSlice, columns: list[str]) -> pa.Table:
    dataset = lance.dataset(uri)
    chosen = [dataset.get_fragment(f) for f in part.fragments]
    return dataset.scanner(columns=columns, fragments=chosen, offset=part.offset, limit=part.limit).to_table()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("part", [ScanSlice((1,), 7, 20), ScanSlice((0, 1, 2), 50, 200), ScanSlice((2,), 0, ROWS)])
@pytest.mark.parametrize("columns", [["a"], ["s", "a"]])
def test_a_slice_is_read_from_the_data_files(uri: str, part: ScanSlice, columns: list[str]) -> None:
    table, direct = read(uri, part, columns)
    assert direct
    assert table == scanned(uri, part, columns)


def test_columns_that_changed_their_names(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.alter_columns({"path": "a", "name": "c"})
    dataset.alter_columns({"path": "b", "name": "a"})
    dataset.alter_columns({"path": "c", "name": "b"})
    part = ScanSlice((1,), 0, 3)
    table, direct = read(uri, part, ["a", "b"])
    assert not direct
    assert table.to_pydict() == {"a": [-100, -101, -102], "b": [100, 101, 102]}


def test_columns_in_several_files_and_of_another_type(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.add_columns({"d": "a * 2"})
    part = ScanSlice((0, 1), 90, 20)
    both, direct = read(uri, part, ["a", "d"])
    assert not direct
    assert both == scanned(uri, part, ["a", "d"])
    alone, direct = read(uri, part, ["d"])
    assert direct
    assert alone == both.select(["d"])
    lance.dataset(uri).alter_columns({"path": "a", "data_type": pa.int32()})
    narrow, _ = read(uri, part, ["a"])
    assert narrow.schema.field("a").type == pa.int32()
    assert narrow == scanned(uri, part, ["a"])


def test_deleted_rows_and_damaged_files_are_left_to_a_scan(uri: str) -> None:
    lance.dataset(uri).delete("a = 5")
    table, direct = read(uri, ScanSlice((0,), 4, 2), ["a"])
    assert not direct
    assert table.to_pydict() == {"a": [4, 6]}
    [name] = [f.path for f in lance.dataset(uri).get_fragments()[1].metadata.files]
    file = Path(uri) / "data" / name
    file.write_bytes(file.read_bytes()[:-9] + b"\xff" * 9)
    snapshot = Snapshot.open(Location(uri))
    assert snapshot._read_directly(ScanSlice((1,), 0, 2), ["a"]) is None  # pyright: ignore[reportPrivateUsage]
