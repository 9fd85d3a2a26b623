"""Many values are found in a B-tree as a scan finds them, whatever lies between their pages; damage is noticed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.format.store import Store
from pennon.index.btree import points
from pennon.index.btree.segment import BTreeSegment
from pennon.query.catalog import Catalog
from pennon.query.lookup import points as pairs
from pennon.query.lookup.find import Lookup

pytestmark = pytest.mark.usefixtures("process_engine")

ROWS = 3000
VALUES: dict[str, Any] = {
    "int64": lambda n: pa.array(n * 3 - 1000, mask=n % 17 == 0),
    "string": lambda n: pa.array([None if v % 17 == 0 else f"k{v % 50}-{v // 7}" for v in n.tolist()]),
    "double": lambda n: pa.array(n / 7 - 50, mask=n % 17 == 0),
    "wide": lambda n: pa.array([Decimal(int(v)).scaleb(15) for v in n], pa.decimal128(38, 3)),
}


def made(tmp_path: Path, kind: str) -> str:
    uri = str(tmp_path / "t.lance")
    numbers = np.random.default_rng(3).integers(0, ROWS // 2, ROWS)
    table = pa.table({"id": np.arange(ROWS), "k": VALUES[kind](numbers)})
    lance.write_dataset(table, uri, max_rows_per_file=ROWS // 3)
    pennon.open(uri).create_index("k", pennon.BTree(batch_size=16, ranges=3))
    lance.dataset(uri).delete("id % 13 = 5")
    return uri


def catalog_of(uri: str) -> Catalog:
    return pennon.open(uri)._indices()  # pyright: ignore[reportPrivateUsage]


def scanned(uri: str, keys: pa.Array) -> list[tuple[int, int]]:
    """Positions of keys with the ids of their rows."""
    rows = lance.dataset(uri).scanner(columns=["id", "k"], use_scalar_index=False).to_table()
    own: dict[Any, list[int]] = {}
    for number, key in enumerate(rows["k"].to_pylist()):
        own.setdefault(key, []).append(rows["id"][number].as_py())
    return sorted((at, id_) for at, key in enumerate(keys.to_pylist()) if key is not None for id_ in own.get(key, ()))


def found(uri: str, keys: pa.Array) -> list[tuple[int, int]]:
    lookup = Lookup(catalog_of(uri), ["k"], ["id"])
    return sorted(
        (int(key), id_)
        for part in lookup.find([keys])
        for key, id_ in zip(part.keys, part.rows["id"].to_pylist(), strict=True)
    )


@pytest.mark.parametrize("kind", VALUES)
def test_windows_find_what_a_scan_finds(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = made(tmp_path, kind)
    draw = np.random.default_rng(4)
    for batch_bytes, gap_bytes in ((1, 0), (16 * 16 * 5, 16 * 16 * 2), (1 << 20, 1 << 20)):
        monkeypatch.setattr(points, "BATCH_BYTES", batch_bytes)
        monkeypatch.setattr(points, "GAP_BYTES", gap_bytes)
        for count in (1, 30, 700):
            keys = VALUES[kind](draw.integers(-20, ROWS // 2 + 20, count))
            assert found(uri, keys) == scanned(uri, keys)


def test_rows_that_are_too_many_for_pairs_are_found_as_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = made(tmp_path, "int64")
    keys = VALUES["int64"](np.arange(ROWS // 2))
    expected = scanned(uri, keys)
    monkeypatch.setattr(pairs.find_pairs, "__defaults__", (10,))
    assert found(uri, keys) == expected


def test_rows_are_not_read_where_only_addresses_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = made(tmp_path, "int64")
    keys = VALUES["int64"](np.arange(0, 900, 7))
    expected = sorted(set(Lookup(catalog_of(uri), ["k"], ["_rowaddr"]).find_all([keys]).addresses))
    monkeypatch.setattr(Lookup, "_fetched", lambda *_: pytest.fail("rows were read"))
    lookup = Lookup(catalog_of(uri), ["k"])
    assert sorted({address for part in lookup.find([keys]) for address in part.addresses}) == expected
    assert len(expected) > 100


@pytest.mark.parametrize("column", [0, 1])
def test_a_changed_page_is_noticed_if_it_is_needed(
    tmp_path: Path, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its digest: the file is valid otherwise, and the test hides that its size differs by a few bytes."""
    monkeypatch.setattr(Store, "size", lambda *_: None)
    monkeypatch.setattr(Store, "check_container", lambda *_: None)
    uri = made(tmp_path, "int64")
    path = sorted(Path(uri).glob("_indices/*/part_*_page_data.lance"))[1]
    rows = LanceFileReader(str(path)).read_all().to_table()
    values = rows.column(column).to_numpy().copy()
    if column:
        values[16 * 5 + 3] += 1
    else:
        place = 16 * 5 + int(np.flatnonzero(np.diff(values[16 * 5 : 16 * 6]))[0])
        values[place] = values[place + 1]
    changed = rows.set_column(column, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))
    path.unlink()
    with LanceFileWriter(str(path), rows.schema, version="2.1") as writer:
        writer.write_batch(changed.combine_chunks().to_batches()[0])
    keys = VALUES["int64"](np.arange(ROWS // 2))
    with pytest.warns(DamagedIndexWarning, match="not as it was written"):
        assert found(uri, keys) == scanned(uri, keys)


def test_pages_between_needed_ones_contribute_nothing(tmp_path: Path) -> None:
    uri = made(tmp_path, "int64")
    catalog = catalog_of(uri)
    segment = catalog.open(catalog.indices["k"][0].segments[0])
    assert isinstance(segment, BTreeSegment)
    keys = pa.array(np.sort(np.random.default_rng(5).choice(np.arange(-1000, 3500), 40, replace=False)))
    got = [(int(at), int(id_)) for positions, ids in segment.find(keys) for at, id_ in zip(positions, ids, strict=True)]
    stored = lance.dataset(uri, version=1).scanner(columns=["k"], with_row_address=True).to_table()
    own = {key: at for at, key in enumerate(keys.to_pylist())}
    pairs_ = zip(stored["k"].to_pylist(), stored["_rowaddr"].to_pylist(), strict=True)
    assert sorted(got) == sorted((own[key], address) for key, address in pairs_ if key in own)
