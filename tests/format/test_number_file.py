"""Rows of numbers that are decoded without pylance, against what pylance reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader, LanceFileWriter

import pennon
from pennon.errors import DamagedFile
from pennon.format.lance_file import LanceFile
from pennon.format.mini_blocks import unpack
from pennon.format.number_file import MOST_READ, columns_by_name
from pennon.format.rows import RowReader
from pennon.format.store import Location, open_store

RANDOM = np.random.default_rng(7)
COLUMNS: dict[str, pa.Array] = {
    "sequence": pa.array(np.arange(5000)),
    "random": pa.array(RANDOM.integers(-(2**62), 2**62, 5000)),
    "negative": pa.array(RANDOM.integers(-5, 5, 5000)),
    "int8": pa.array(RANDOM.integers(-100, 100, 5000).astype(np.int8)),
    "uint16": pa.array(RANDOM.integers(0, 900, 5000).astype(np.uint16)),
    "int32": pa.array(RANDOM.integers(0, 2**20, 5000).astype(np.int32)),
    "half": pa.array(RANDOM.random(5000).astype(np.float16)),
    "float": pa.array(RANDOM.random(5000).astype(np.float32)),
    "double": pa.array(RANDOM.standard_normal(5000)),
    "widths": pa.array(RANDOM.integers(0, 2**62, 5000) >> (np.arange(5000) // 1024 * 9 + 20)),
    "growing": pa.array(np.arange(5000) ** 4),
    "constant": pa.array(np.full(5000, 7)),
    "few": pa.array(RANDOM.integers(0, 3, 5000) * 2**50),
    "runs": pa.array(np.repeat(np.arange(50) * 2**40, 100)),
    "instants": pa.array(np.arange(5000) * 10**9, pa.timestamp("us", "UTC")),
    "days": pa.array(RANDOM.integers(0, 20_000, 5000).astype(np.int32), pa.date32()),
    "nulls": pa.array([None if row % 10 == 0 else row for row in range(5000)]),
    "nothing": pa.array([None] * 5000, pa.int64()),
    "text": pa.array([f"name-{row}" for row in range(5000)]),
}
# Whether pylance writes such a column in a layout that is decoded here, by the version of the file.
DECODED = {
    "2.0": set[str](),
    "2.1": COLUMNS.keys() - {"constant", "few", "runs", "nulls", "nothing", "text"},
    "2.2": COLUMNS.keys() - {"few", "runs", "nulls", "nothing", "text", "negative"},
}


def write(path: Path, table: pa.Table, version: str = "2.2", rows: int = 10**6) -> Path:
    with LanceFileWriter(str(path), table.schema, version=version) as writer:
        for batch in table.to_batches(rows):
            writer.write_batch(batch)
    return path


def opened(path: Path, **options: Any) -> LanceFile:
    return LanceFile(open_store(Location.of(str(path.parent))), path.name, **options)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_read_as_pylance_reads_them(name: str, version: str, tmp_path: Path) -> None:
    path = write(tmp_path / "file.lance", pa.table({"x": COLUMNS[name]}), version)
    whole = LanceFileReader(str(path)).read_all().to_table()
    file = opened(path)
    assert file.schema.equals(whole.schema.remove_metadata(), check_metadata=True)
    asked = mock.Mock(wraps=file._store.open_reader)
    with mock.patch.object(file._store, "open_reader", asked):
        for start, count in ((0, 1), (0, 5000), (1023, 2), (511, 600), (4990, 10), (2047, 1), (1, 4999)):
            assert file.read(start, count).equals(whole.slice(start, count)), (start, count)
        assert file.take([0, 3, 1024, 4999]).equals(whole.take([0, 3, 1024, 4999]))
    numbers = file._numbers is not None
    assert (numbers and not asked.called) == (name in DECODED[version])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_rows_of_several_pages(version: str, tmp_path: Path) -> None:
    values = RANDOM.integers(0, 2**60, 3_000_000)
    table = pa.table({"a": values, "b": np.arange(3_000_000, dtype=np.uint64)})
    path = write(tmp_path / "file.lance", table, version)
    file = opened(path)
    assert file._numbers is not None
    assert [len(column._metadata.pages) > 1 for column in file._numbers._columns] == [True, True]
    edges = [edge for column in file._numbers._columns for edge in column._starts[1:-1]]
    for start in [0, 2_999_000, *(edge - 500 for edge in edges)]:
        assert file.read(start, 1000).equals(table.slice(start, 1000)), start
    assert file._opened is None
    assert file.read(0, MOST_READ + 1).equals(table.slice(0, MOST_READ + 1))
    assert file._opened is not None, "many rows are read by pylance"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_numbers(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = np.dtype(data.draw(st.sampled_from(["u1", "i2", "u4", "i8", "u8"])))
    limits = np.iinfo(kind)
    low = data.draw(st.integers(limits.min, limits.max))
    high = data.draw(st.integers(low, limits.max))
    rows = data.draw(st.integers(1, 3000))
    values = np.random.default_rng(rows).integers(low, high, rows, dtype=kind, endpoint=True)
    if data.draw(st.booleans()):
        values.sort()
    version = data.draw(st.sampled_from(["2.1", "2.2"]))
    path = write(tmp_path_factory.mktemp("any") / "file.lance", pa.table({"x": values}), version)
    file = opened(path)
    start = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - start))
    assert np.array_equal(file.read(start, count)["x"].to_numpy(), values[start : start + count])
    assert file.take([start])["x"].to_pylist() == [values[start]]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_every_width_is_unpacked(bits: int) -> None:
    for width in range(bits + 1):
        numbers = [int(word) for word in RANDOM.integers(0, 2**63, 2048, dtype=np.uint64)]
        values = np.array([number % (1 << width) for number in numbers], dtype=f"<u{bits // 8}").reshape(2, 1024)
        assert np.array_equal(unpack(_packed(values, width, bits), width, bits), values), width


def _packed(values: np.ndarray, width: int, bits: int) -> np.ndarray:
    """Bit by bit, as the order of FastLanes is described."""
    lanes, order = 1024 // bits, (0, 4, 2, 6, 1, 5, 3, 7)
    packed = np.zeros((len(values), width * lanes), dtype=values.dtype)
    for chunk in range(len(values)):
        for lane in range(lanes):
            stream = 0
            for row in range(bits):
                place = order[row // 8] * 16 + (row % 8) * 128 + lane
                stream |= int(values[chunk, place]) << (row * width)
            for word in range(width):
                packed[chunk, word * lanes + lane] = (stream >> (word * bits)) & ((1 << bits) - 1)
    return packed


def test_damage_raises_a_named_error_or_returns_rows(tmp_path: Path) -> None:
    table = pa.table({"a": RANDOM.integers(0, 2**40, 3000), "b": RANDOM.integers(0, 9, 3000)})
    path = write(tmp_path / "file.lance", table)
    content = path.read_bytes()
    for place in RANDOM.integers(0, len(content), 300):
        changed = bytearray(content)
        changed[place] ^= 1 << int(RANDOM.integers(0, 8))
        path.write_bytes(changed)
        try:
            found = opened(path).read(500, 1200)
        except DamagedFile:
            continue
        assert found.num_rows == 1200


def test_few_rows_are_fetched_from_data_files(tmp_path: Path) -> None:
    """After deletions, a new column, a renamed one and an update in place."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"id": np.arange(3000) * 3, "v": RANDOM.random(3000), "s": [str(row) for row in range(3000)]})
    dataset = lance.write_dataset(rows, uri, max_rows_per_file=1000)
    dataset.delete("id % 7 = 0")
    dataset.add_columns({"twice": "id * 2"})
    dataset.alter_columns({"path": "v", "name": "renamed"})
    table = pennon.open(uri, engine="local")
    table.create_index("id")
    table.update_column("twice", "twice + 1", where="id > 6000")
    table = pennon.open(uri, engine="local")
    for filter in ("id = 33", "id IN (3, 4500, 4503, 8991)", "id = 21", "id = 2998 OR id >= 8985"):
        for columns in (["id"], ["twice", "id"], ["renamed", "id"], ["renamed", "twice"], None, ["s", "id"]):
            expected = lance.dataset(uri).to_table(filter=filter, columns=columns)
            with mock.patch.object(RowReader, "_take", autospec=True, side_effect=RowReader._take) as pylance:
                found = table.scan(filter, columns)
            assert found.equals(expected), (filter, columns)
            assert found.schema.equals(expected.schema, check_metadata=True)
            if "twice" not in found.column_names:
                assert pylance.called == ("s" in found.column_names and found.num_rows > 0)


def test_columns_below_others_are_left_to_pylance(tmp_path: Path) -> None:
    nested = pa.array([{"x": row, "y": [row, 1]} for row in range(100)])
    table = pa.table({"a": np.arange(100), "st": nested, "b": np.arange(100) * 2})
    path = write(tmp_path / "file.lance", table)
    store = open_store(Location.of(str(tmp_path)))
    end = store.check_container(path.name, path.stat().st_size)
    assert end is not None
    assert columns_by_name(end) is None
    assert opened(path, columns=["b"]).read(7, 3)["b"].to_pylist() == [14, 16, 18]
    assert opened(path, columns=["a", "b"]).read(7, 1).to_pylist() == [{"a": 7, "b": 14}]
