"""Many rows here and there of columns of numbers, decoded without pylance, against what pylance reads."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileWriter

import pennon
from pennon.errors import DamagedFile
from pennon.format import scattered_values
from pennon.format.local_file import OWN_READS
from pennon.format.number_file import NumberFile, columns_by_name
from pennon.format.rows import RowReader
from pennon.format.scattered_values import Scratch
from pennon.format.store import Location, open_store

RANDOM = np.random.default_rng(11)
COUNT = 200_000


def written(path: Path, table: pa.Table, version: str = "2.2") -> None:
    with LanceFileWriter(str(path), table.schema, version=version) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def gathered(path: Path, rows: np.ndarray) -> pa.Table | None:
    store = open_store(Location.of(str(path.parent)))
    end = store.check_container(path.name, path.stat().st_size)
    file = None if end is None else columns_by_name(end)
    assert isinstance(file, NumberFile)
    return file.gather(store.local_file(path.name), rows.astype(np.int64), Scratch())


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 1.0])
def test_rows_here_and_there(version: str, share: float, tmp_path: Path) -> None:
    table = pa.table(
        {
            "flat": RANDOM.integers(-(2**63), 2**63, COUNT),
            "packed": RANDOM.integers(0, 2**37, COUNT),
            "widths": RANDOM.integers(0, 2**62, COUNT) >> (np.arange(COUNT) // 1024 % 62),
            "bytes": RANDOM.integers(0, 256, COUNT).astype(np.uint8),
            "shorts": RANDOM.integers(-900, 900, COUNT).astype(np.int16),
            "words": RANDOM.integers(0, 2**20, COUNT).astype(np.uint32),
            "float": RANDOM.random(COUNT).astype(np.float32),
            "instants": pa.array(np.arange(COUNT) * 10**9, pa.timestamp("us", "UTC")),
        }
    )
    written(tmp_path / "file.lance", table, version)
    rows = np.flatnonzero(RANDOM.random(COUNT) < share)
    rows = np.union1d(rows, [0, COUNT - 1])
    with mock.patch.object(scattered_values, "BATCH_BYTES", 1 << 16):
        found = gathered(tmp_path / "file.lance", rows)
    assert found is not None
    for name in table.column_names:
        assert found[name].combine_chunks().equals(table[name].take(pa.array(rows)).combine_chunks()), name


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_numbers(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = np.dtype(data.draw(st.sampled_from(["u1", "i2", "u4", "i8", "u8"])))
    limits = np.iinfo(kind)
    low = data.draw(st.integers(limits.min, limits.max))
    high = data.draw(st.integers(low, limits.max))
    count = data.draw(st.integers(1, 5000))
    values = np.random.default_rng(count).integers(low, high, count, dtype=kind, endpoint=True)
    if data.draw(st.booleans()):
        values.sort()
    path = tmp_path_factory.mktemp("any") / "file.lance"
    written(path, pa.table({"x": values}), data.draw(st.sampled_from(["2.1", "2.2"])))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    found = gathered(path, rows)
    if found is not None:  # few values that repeat are run-length encoded, which only pylance reads
        assert np.array_equal(found["x"].to_numpy(), values[rows])


def test_gaps_are_read_only_where_they_are_short(tmp_path: Path) -> None:
    written(tmp_path / "file.lance", pa.table({"x": RANDOM.integers(-(2**63), 2**63, COUNT)}))
    near, far = np.arange(0, 10_000, 700), np.arange(0, COUNT, 20_000)
    for rows, reads in ((near, 1), (far, len(far))):
        gathered(tmp_path / "file.lance", rows)
        before = OWN_READS.reads
        gathered(tmp_path / "file.lance", rows)
        # The end of the file, and the sizes of the chunks.
        assert OWN_READS.reads - before == 2 + reads


def test_damage_raises_a_named_error_or_returns_rows(tmp_path: Path) -> None:
    path = tmp_path / "file.lance"
    written(path, pa.table({"a": RANDOM.integers(0, 2**40, 9000), "b": RANDOM.integers(-(2**63), 2**63, 9000)}))
    content, rows = path.read_bytes(), np.arange(0, 9000, 3)
    for place in RANDOM.integers(0, len(content), 300):
        changed = bytearray(content)
        changed[place] ^= 1 << int(RANDOM.integers(0, 8))
        path.write_bytes(changed)
        store = open_store(Location.of(str(tmp_path)))
        try:
            end = store.check_container(path.name, len(content))
            file = None if end is None else columns_by_name(end)
            found = None if file is None else file.gather(store.local_file(path.name), rows, Scratch())
        except DamagedFile:
            continue
        assert found is None or found.num_rows == len(rows)


def test_filters_fetch_numbers_without_a_scan(tmp_path: Path) -> None:
    """After deletions and an update in place, with a limit; one column has NULLs in the last fragment."""
    uri, count = str(tmp_path / "t.lance"), 60_000
    kinds = pa.array(RANDOM.choice(list("abcdefghijklmnopqrst"), count))
    late = pa.array([None if row == count - 1 else row for row in range(count)])
    rows = pa.table({"kind": kinds, "key": RANDOM.integers(-(2**63), 2**63, count), "late": late})
    dataset = lance.write_dataset(rows, uri, max_rows_per_file=20_000)
    dataset.delete("key % 7 = 0")
    table = pennon.open(uri, engine="local")
    table.create_index("kind", "BITMAP")
    table.update_column("late", "late + 1", where="kind = 'b'")
    table = pennon.open(uri, engine="local")
    for filter in ("kind = 'a'", "kind IN ('a', 'c')", "kind = 'x'"):
        for columns, direct in ((["key"], True), (["key", "late"], False), (["kind", "key"], False)):
            for limit in (None, 5, 2_000):
                expected = lance.dataset(uri).to_table(filter=filter, columns=columns, limit=limit)
                with mock.patch.object(RowReader, "scanner", autospec=True, side_effect=RowReader.scanner) as scans:
                    found = table.scan(filter, columns, limit=limit)
                assert found.equals(expected), (filter, columns, limit)
                assert found.schema.equals(expected.schema, check_metadata=True)
                if direct and found.num_rows:
                    assert not scans.called
