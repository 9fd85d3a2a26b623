"""A lookup finds the rows that a scan for the same keys finds, whatever happened to the table before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter, UnsupportedColumn
from pennon.format.addresses import fragment_of
from pennon.query.lookup.find import Lookup
from pennon.query.lookup.matching import KeyTable

pytestmark = pytest.mark.usefixtures("process_engine")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
Maker = Callable[[int], Any]
# Type, value of a number, and which kinds of index to build.
TYPES: dict[str, tuple[pa.DataType, Maker, tuple[str, ...]]] = {
    "int64": (pa.int64(), lambda n: n - 20, ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")),
    "int8": (pa.int8(), lambda n: n - 20, ("BTREE", "BITMAP")),
    "uint64": (pa.uint64(), lambda n: n + 2**63, ("BTREE", "BLOOMFILTER")),
    "string": (pa.string(), lambda n: f"k{n % 7}é{n}", ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")),
    "large_string": (pa.large_string(), lambda n: "x" * n, ("BTREE",)),
    "binary": (pa.binary(), lambda n: bytes([255 - n, n]), ("BTREE", "BLOOMFILTER")),
    "uuid": (pa.uuid(), lambda n: UUID(int=n << 64 | 5).bytes, ("BTREE",)),
    "decimal": (pa.decimal128(12, 2), lambda n: Decimal(n - 20) / 4, ("BTREE", "BITMAP")),
    "wide_decimal": (pa.decimal128(38, 3), lambda n: Decimal(n - 20).scaleb(20), ("BTREE",)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: EPOCH + timedelta(n),
        ("BTREE", "ZONEMAP"),
    ),
    "millis": (
        pa.timestamp("ms"),
        lambda n: (EPOCH + timedelta(milliseconds=n)).replace(tzinfo=None),
        ("BTREE", "BLOOMFILTER"),
    ),
    "date": (pa.date32(), lambda n: date(2026, 1, 1) + timedelta(n), ("BTREE", "BITMAP")),
    "float": (
        pa.float32(),
        lambda n: [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 0.5][n] if n < 7 else n / 8,
        ("BTREE", "ZONEMAP", "BLOOMFILTER"),
    ),
    "double": (
        pa.float64(),
        lambda n: [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 0.1][n] if n < 7 else -n / 10,
        ("BTREE", "ZONEMAP"),
    ),
    "bool": (pa.bool_(), lambda n: n % 2 == 0, ("BTREE", "BITMAP")),
}


def column(name: str, numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Values of numbers; every eleventh is NULL."""
    type_, value, _ = TYPES[name]
    return pa.array([None if n % 11 == 10 else value(int(n)) for n in numbers], type_)


def comparable(value: Any) -> Any:
    """Equal for values that Spark's join holds equal."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def expected(uri: str, on: Sequence[str], keys: Sequence[Sequence[Any]], where: str | None = None) -> set[Any]:
    """Pairs of the position of a key and the id of a row, by a scan without indices."""
    found = lance.dataset(uri).scanner(columns=["id", *on], filter=where, use_scalar_index=False).to_table()
    rows: dict[Any, list[int]] = {}
    for id_, *values in zip(found["id"].to_pylist(), *(found[name].to_pylist() for name in on), strict=True):
        if None not in values:
            rows.setdefault(tuple(map(comparable, values)), []).append(id_)
    pairs = set[Any]()
    for position, key in enumerate(keys):
        if None not in key:
            pairs |= {(position, id_) for id_ in rows.get(tuple(map(comparable, key)), ())}
    return pairs


def lookup(uri: str, on: Sequence[str], columns: Sequence[str] = ("id",), **options: Any) -> Lookup:
    catalog = pennon.open(uri)._indices()  # pyright: ignore[reportPrivateUsage]
    return Lookup(catalog, on, columns, **options)


def found(asked: Lookup, keys: Sequence[pa.Array], piece_rows: int = 40) -> set[Any]:
    """The same pairs, of the covered fragments by their index and of the others from a scan of their keys."""
    coverage, read = asked.coverage, asked.read_keys(keys)
    covered = coverage.exact | coverage.narrowed
    held = asked.held([*asked.scan_keys(dict.fromkeys(coverage.uncovered))]) if coverage.uncovered else None
    parts = [*asked.find(read, covered, piece_rows), *(held.find(read) if held else ())]
    pairs = [(int(key), id_) for part in parts for key, id_ in zip(part.keys, part.rows["id"].to_pylist(), strict=True)]
    whole = asked.find_all(read)
    assert len(pairs) == len(set(pairs))
    assert sorted(pairs) == sorted(zip(whole.keys.tolist(), whole.rows["id"].to_pylist(), strict=True))
    assert np.array_equal(np.lexsort((whole.addresses, whole.keys)), np.arange(len(whole)))
    return set(pairs)


def build(path: Path, name: str, kind: str, rng: np.random.Generator, *, stable: bool) -> str:
    """A table with several segments, deleted and updated rows, moved rows, and a fragment that no index covers."""
    uri = str(path)
    numbers = rng.integers(0, 40, 400)
    rows = pa.table({"id": range(400), "k": column(name, numbers), "g": pa.array(numbers % 3, pa.int32())})
    lance.write_dataset(rows, uri, max_rows_per_file=50, enable_stable_row_ids=stable)
    pennon.open(uri).create_index("k", kind, "first", fragment_ids=[0, 1, 2])
    pennon.open(uri).create_index("k", kind, "first", fragment_ids=[3, 4])
    lance.dataset(uri).delete("id % 9 = 4 or id between 100 and 120")
    pennon.open(uri).compact(target_rows_per_fragment=100, remap="immediate" if stable else "deferred")
    lance.dataset(uri).delete("id % 13 = 1")
    return uri


@pytest.mark.parametrize(
    ("name", "stable"), [*((name, False) for name in TYPES), *((name, True) for name in ("int64", "string", "double"))]
)
def test_a_lookup_equals_a_scan(tmp_path: Path, name: str, stable: bool) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    for kind in TYPES[name][2]:
        uri = build(tmp_path / f"{kind}.lance", name, kind, rng, stable=stable)
        asked = lookup(uri, ["k"])
        exact = kind in ("BTREE", "BITMAP")
        assert bool(asked.coverage.exact) == exact
        assert bool(asked.coverage.narrowed) != exact
        assert asked.coverage.uncovered
        for count in (1, 5, 60):
            keys = column(name, rng.integers(0, 48, count))
            pairs = [(key,) for key in keys.to_pylist()]
            assert found(asked, [keys]) == expected(uri, ["k"], pairs), kind
        filtered = lookup(uri, ["k"], filter="g = 1")
        assert found(filtered, [keys]) == expected(uri, ["k"], pairs, "g = 1"), kind


@pytest.mark.parametrize("kinds", [("BTREE", None), ("BTREE", "BITMAP"), (None, "BITMAP"), ("ZONEMAP", "BTREE")])
def test_two_columns_with_indices_of_other_coverage(tmp_path: Path, kinds: tuple[str | None, str | None]) -> None:
    rng, uri = np.random.default_rng(4), str(tmp_path / "t.lance")
    columns = {"k": column("string", rng.integers(0, 30, 600)), "g": pa.array(rng.integers(0, 5, 600), pa.int32())}
    lance.write_dataset(pa.table({"id": range(600), **columns}), uri, max_rows_per_file=100)
    for name, kind, fragments in zip(columns, kinds, ([0, 1, 2], [2, 3]), strict=True):
        if kind is not None:
            pennon.open(uri).create_index(name, kind, fragment_ids=fragments)
    lance.dataset(uri).delete("id % 7 = 0")
    asked = lookup(uri, ["k", "g"])
    assert len(asked.coverage.uncovered) == 6 - len(
        {f for k, s in zip(kinds, ([0, 1, 2], [2, 3]), strict=True) if k for f in s}
    )
    keys = [
        column("string", rng.integers(0, 33, 80)),
        pa.array([None if n == 5 else n for n in rng.integers(0, 6, 80)]),
    ]
    pairs = list(zip(*(key.to_pylist() for key in keys), strict=True))
    assert found(asked, keys) == expected(uri, ["k", "g"], pairs)


def test_many_columns_and_repeated_keys(tmp_path: Path) -> None:
    rng, uri = np.random.default_rng(5), str(tmp_path / "t.lance")
    names = list("abcdef")
    columns = {name: pa.array(rng.integers(0, 2, 300)) for name in names}
    lance.write_dataset(pa.table({"id": range(300), **columns}), uri)
    keys = [pa.array(rng.integers(0, 2, 50)) for _ in names]
    pairs = list(zip(*(key.to_pylist() for key in keys), strict=True))
    assert len(set(pairs)) < len(pairs)
    assert found(lookup(uri, names), keys) == expected(uri, names, pairs)


def test_keys_of_other_types_compare_by_value(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rows = {
        "id": range(3),
        "small": pa.array([1, -1, 127], pa.int8()),
        "unsigned": pa.array([1, 2**64 - 1, 5], pa.uint64()),
        "half": pa.array(np.array([0.5, 0.1, 2], np.float16)),
        "seconds": pa.array([1, 2, 3], pa.timestamp("s")),
        "money": pa.array([Decimal("1.00"), Decimal("2.50"), None], pa.decimal128(5, 2)),
        "sixteen": pa.array([bytes(16), b"a" * 16, None], pa.binary(16)),
    }
    lance.write_dataset(pa.table(rows), uri)
    cases: list[tuple[str, pa.Array, list[tuple[int, int]]]] = [
        ("small", pa.array([1, 257, -1, 2**40, None], pa.int64()), [(0, 0), (2, 1)]),
        ("unsigned", pa.array([-1, 1], pa.int64()), [(1, 0)]),
        ("unsigned", pa.array([Decimal(2**64 - 1), Decimal(-1)], pa.decimal128(20, 0)), [(0, 1)]),
        ("half", pa.array([0.5, 0.1, 1e300]), [(0, 0)]),
        ("seconds", pa.array([1_000_000, 2_000_001, 3_000_000], pa.timestamp("us")), [(0, 0), (2, 2)]),
        ("money", pa.array([Decimal(1), Decimal("2.5"), Decimal("99999.9")], pa.decimal128(10, 1)), [(0, 0), (1, 1)]),
        ("money", pa.array([Decimal(1000), Decimal(1), Decimal(99900)], pa.decimal128(10, 0)), [(1, 0)]),
        ("money", pa.array([Decimal("1.001"), Decimal("2.5")], pa.decimal128(10, 3)), [(1, 1)]),
        ("sixteen", pa.array([b"a", b"a" * 16, b"a" * 17], pa.binary()), [(1, 1)]),
    ]
    for name, keys, pairs in cases:
        asked = lookup(uri, [name])
        asked.keys[0].check(keys.type, "k")
        whole = asked.find_all(asked.read_keys([keys]))
        assert list(zip(whole.keys.tolist(), whole.rows["id"].to_pylist(), strict=True)) == pairs, name


def test_floats_by_their_bits_as_merge_insert_compares_them(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(4), "k": [0.0, -0.0, math.nan, 1.0]}), uri)
    pennon.open(uri).create_index("k")
    for bits, pairs in ((False, {(0, 0), (0, 1), (1, 2)}), (True, {(0, 1), (1, 2)})):
        assert found(lookup(uri, ["k"], float_bits=bits), [pa.array([-0.0, math.nan])]) == pairs


def test_columns_of_every_sort_and_none(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(6), "s": pa.array([{"n": n // 2, "t": str(n)} for n in range(6)])})
    lance.write_dataset(rows, uri, max_rows_per_file=2)
    pennon.open(uri).create_index("s.n", fragment_ids=[0, 1])
    keys = [pa.array([2, 0, 2])]
    whole = lookup(uri, ["s.n"], ["s", "s.n", "_rowid", "_rowaddr", "id"]).find_all(keys)
    assert whole.keys.tolist() == [0, 0, 1, 1, 2, 2]
    assert whole.rows["id"].to_pylist() == [4, 5, 0, 1, 4, 5]
    assert whole.rows["s"].to_pylist()[0] == {"n": 2, "t": "4"}
    assert whole.rows["_rowaddr"].to_pylist() == whole.addresses.tolist()
    assert fragment_of(whole.addresses).tolist() == [2, 2, 0, 0, 2, 2]
    bare = lookup(uri, ["s.n"], []).find_all(keys)
    assert bare.addresses.tolist() == whole.addresses.tolist()
    assert bare.rows.num_columns == 0
    none = lookup(uri, ["s.n"]).find_all([pa.array([None, 77], pa.int64())])
    assert len(none) == 0
    assert none.rows.schema.names == ["id"]


def test_a_damaged_index_is_left_out(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(100), "k": range(100)}), uri, max_rows_per_file=50)
    pennon.open(uri).create_index("k")
    for file in (tmp_path / "t.lance/_indices").rglob("*page_data.lance"):
        file.write_bytes(file.read_bytes()[:100])
    asked = lookup(uri, ["k"])
    with pytest.warns(pennon.errors.DamagedIndexWarning):
        assert asked.find_all([pa.array([3, 70])]).rows["id"].to_pylist() == [3, 70]


def test_what_cannot_be_looked_up(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(
        pa.table({"id": range(3), "l": [[1], [2], []], "t": pa.array([1, 2, 3], pa.timestamp("us"))}), uri
    )
    with pytest.raises(ColumnNotFound, match="no column 'nothing'"):
        lookup(uri, ["nothing"])
    with pytest.raises(UnsupportedColumn, match="'l' has type list"):
        lookup(uri, ["l"])
    with pytest.raises(InvalidFilter):
        lookup(uri, ["id"], filter="id >")
    asked = lookup(uri, ["id", "t"])
    for at, type_ in (
        (0, pa.string()),
        (0, pa.float64()),
        (0, pa.decimal128(5, 1)),
        (1, pa.timestamp("us", "UTC")),
        (1, pa.int64()),
    ):
        with pytest.raises(InvalidArgument, match="the keys in 'uid' have type"):
            asked.keys[at].check(type_, "uid")


def test_repeated_keys_meet_repeated_rows_in_bounded_pieces() -> None:
    keys, rows = KeyTable([pa.array([1, 2, 1, None, 1])]), [pa.array([1, 3, 1, 2, None, 1, 1])]
    whole = sorted(
        pair for keys_, rows_ in keys.pairs(rows) for pair in zip(keys_.tolist(), rows_.tolist(), strict=True)
    )
    assert whole == sorted([(1, 3), *((key, row) for key in (0, 2, 4) for row in (0, 2, 5, 6))])
    for most in (1, 2, 5, 13, 100):
        pieces = [*keys.pairs(rows, most)]
        assert sorted(p for k, r in pieces for p in zip(k.tolist(), r.tolist(), strict=True)) == whole
        assert all(len(k) <= most + 2 for k, _ in pieces)
