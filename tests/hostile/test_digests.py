"""Bits that change in a page, a partition or a graph are seen, though nothing else would tell."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.index.cache import SHARED_CACHE
from pennon.index.checksums import Digester, digests_of, digests_of_runs
from tests.hostile.mutations import record_size
from tests.hostile.victims import KINDS, OPTIONS, rows, stock_rows
from tests.support.forged_files import Opened, read, write
from tests.support.manifests import edit_newest
from tests.support.tables import every_type

ARRAYS = every_type(700)

pytestmark = pytest.mark.usefixtures("no_spark")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(900), uri, max_rows_per_file=300)
    return uri


def forged(uri: str, pattern: str, change: Any) -> None:
    """Files written anew with other rows, sizes recorded: only what was written down of the rows can tell."""
    for path in sorted(Path(uri).glob(f"_indices/*/{pattern}")):
        opened = read(path)
        change(opened)
        write(path, opened)
        record_size(Path(uri), path)
    SHARED_CACHE.clear()


def exchanged_ids(opened: Opened) -> None:
    """Two rows of the second page have each other's ids."""
    ids = opened.table["ids"].to_numpy().copy()
    ids[[70, 90]] = ids[[90, 70]]
    opened.table = opened.table.set_column(1, opened.table.schema.field(1), pa.array(ids))


@pytest.mark.parametrize("name", [name for name in ARRAYS.column_names if name not in ("nothing", "inner")])
def test_cuts_do_not_matter_and_every_bit_does(name: str) -> None:
    values = ARRAYS[name].combine_chunks()
    ids = pa.array(np.arange(len(values), dtype=np.uint64))
    whole = digests_of([values, ids], [64] * 11)
    digester, at = Digester.of_pages(64), 0
    for count in (1, 63, 64, 200, 7, 365):
        digester.add([values.slice(at, count), ids.slice(at, count)])
        at += count
    np.testing.assert_array_equal(digester.finish(), whole)
    other = np.arange(len(values), dtype=np.uint64)
    other[100] ^= np.uint64(1 << 63)
    found = digests_of([values, pa.array(other)], [64] * 11)
    assert np.flatnonzero(found != whole).tolist() == [1]
    turned = values.take(pa.array(np.r_[np.arange(640), np.arange(640, 700)[::-1]]))
    assert digests_of([turned, ids], [64] * 11)[10] != whole[10]


def test_empty_runs_have_digests_too() -> None:
    values = pa.array(np.arange(10, dtype=np.uint64))
    found = digests_of([values], [0, 4, 0, 6, 0])
    assert len(found) == 5
    assert found[[0, 2, 4]].tolist() == [0, 0, 0]
    assert found[1] == digests_of([values.slice(0, 4)], [4])[0]


@pytest.mark.parametrize("lengths", [[0, 4, 0, 6, 0], [10], [0, 0], [], [1, 5000, 0, 3000]])
def test_many_runs_at_once_have_the_digests_of_each(lengths: list[int]) -> None:
    rng, rows = np.random.default_rng(3), sum(lengths)
    ids = pa.array(rng.integers(0, 2**64, rows, dtype=np.uint64))
    codes = pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 256, 16 * rows).astype(np.uint8)), 16)
    found = digests_of_runs([ids, codes], lengths)
    assert found is not None
    np.testing.assert_array_equal(found, digests_of([ids, codes], lengths))
    assert digests_of_runs([ids, codes], [*lengths, 1]) is None


@pytest.mark.parametrize("ranges", [1, 3])
@pytest.mark.parametrize("column", ["i", "s"])
def test_ids_of_a_page_that_were_exchanged(uri: str, column: str, ranges: int) -> None:
    pennon.open(uri).create_index(column, ranges=ranges, batch_size=64)
    forged(uri, "*page_data.lance", exchanged_ids)
    filter = f"{column} is not null"
    with pytest.warns(DamagedIndexWarning, match="not as it was written"):
        assert pennon.open(uri).count(filter) == len(stock_rows(lance.dataset(uri), filter))


def test_a_lookup_of_another_segment(uri: str) -> None:
    """Both are sound and of the same shape."""
    table = pennon.open(uri)
    table.create_index("i", fragment_ids=[0], batch_size=64)
    table.create_index("i", fragment_ids=[1], batch_size=64)
    first, second = Path(uri).glob("_indices/*/page_lookup.lance")
    shutil.copy(first, second)
    record_size(Path(uri), second)
    SHARED_CACHE.clear()
    with pytest.warns(DamagedIndexWarning, match="not as it was written"):
        assert pennon.open(uri).count("i < 100") == len(stock_rows(lance.dataset(uri), "i < 100"))


def test_bounds_of_pages_that_lie(uri: str) -> None:
    """The largest value of a page is said to be smaller: rows would be looked for in the next page only."""
    pennon.open(uri).create_index("i", batch_size=64)

    def lower(opened: Opened) -> None:
        maxs = opened.table["max"].to_numpy().copy()
        maxs[4] -= 1
        opened.table = opened.table.set_column(1, opened.table.schema.field(1), pa.array(maxs))

    forged(uri, "page_lookup.lance", lower)
    with pytest.warns(DamagedIndexWarning, match="not as it was written"):
        assert pennon.open(uri).count("i = 60") == len(stock_rows(lance.dataset(uri), "i = 60"))


def test_merging_does_not_make_damage_look_sound(uri: str) -> None:
    pennon.open(uri).create_index("i", batch_size=64)
    forged(uri, "page_data.lance", exchanged_ids)
    lance.write_dataset(rows(300, 900), uri, mode="append")
    with pytest.warns(DamagedIndexWarning, match="built from the data"):
        pennon.open(uri).optimize_indices(num_indices_to_merge=1)
    found = pennon.open(uri).scan("i < 100", ["id"])["id"].to_pylist()
    assert sorted(found) == stock_rows(lance.dataset(uri), "i < 100")


def test_copied_and_merged_pages_keep_their_digests(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("i", ranges=3, batch_size=64)
    lance.write_dataset(rows(300, 900), uri, mode="append")
    table.optimize_indices(num_indices_to_merge=1)
    [index] = pennon.open(uri).indices()
    lookup = read(Path(uri) / "_indices" / index.segments[0].uuid / "page_lookup.lance")
    assert (lookup.table["digest"].to_numpy() != 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.count("i < 100") == len(stock_rows(lance.dataset(uri), "i < 100"))


def test_a_lookup_without_digests_is_believed(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("i", "BTREE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explanation = pennon.open(uri).explain("i < 10", analyze=True)
    assert explanation.indices


ZONES: dict[str, dict[str, Any]] = {"ZONEMAP": {"rows_per_zone": 64}, "BLOOMFILTER": {"number_of_items": 64}}
ZONE_COLUMNS = {
    "ZONEMAP": ("min", "max", "null_count", "fragment_id", "zone_start", "zone_length"),
    "BLOOMFILTER": ("fragment_id", "zone_start", "zone_length", "has_null", "bloom_filter_data"),
}


def flipped(array: pa.Array, rng: np.random.Generator) -> pa.Array:
    """One value with one other bit, or NULL where it was valid."""
    at, values = int(rng.integers(len(array))), array.to_pylist()
    if pa.types.is_boolean(array.type):
        values[at] = not values[at]
    elif values[at] is None or isinstance(values[at], str | bytes):
        content = bytearray((values[at] or "x").encode() if pa.types.is_string(array.type) else values[at])
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(7))
        values[at] = bytes(content).decode() if pa.types.is_string(array.type) else bytes(content)
    else:
        bits = array.type.bit_width if not pa.types.is_uint64(array.type) else 12
        values[at] = int(values[at]) ^ (1 << int(rng.integers(bits - 1)))
    return pa.array(values, array.type)


@pytest.mark.parametrize("kind", ZONES)
@pytest.mark.parametrize("column", ["i", "s"])
def test_one_bit_of_a_zone(uri: str, kind: str, column: str) -> None:
    """Whichever it is, it is noticed."""
    pennon.open(uri).create_index(column, kind, **ZONES[kind])
    [path] = Path(uri).glob("_indices/*/*.lance")
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    value = "i = 40" if column == "i" else "s = 'k033'"
    expected = stock_rows(lance.dataset(uri), value)
    for name in ZONE_COLUMNS[kind]:
        for _ in range(3):

            def change(opened: Opened, name: str = name) -> None:
                at = opened.table.column_names.index(name)
                new = flipped(opened.table.column(at).combine_chunks(), rng)
                opened.table = opened.table.set_column(at, opened.table.schema.field(at), new)

            forged(uri, path.name, change)
            with pytest.warns(DamagedIndexWarning, match="not as they were written"):
                assert sorted(pennon.open(uri).scan(value, ["id"])["id"].to_pylist()) == expected
            path.write_bytes(whole)
            record_size(Path(uri), path)


@pytest.mark.parametrize("kind", ZONES)
def test_nulls_of_zones_that_changed(uri: str, kind: str) -> None:
    pennon.open(uri).create_index("i", kind, **ZONES[kind])

    def change(opened: Opened) -> None:
        content = bytearray(opened.buffers[0])
        content[-1] ^= 1
        opened.buffers[0] = bytes(content)

    forged(uri, "*.lance", change)
    with pytest.warns(DamagedIndexWarning, match="NULL bitmap"):
        assert pennon.open(uri).count("i is null") == len(stock_rows(lance.dataset(uri), "i is null"))


@pytest.mark.parametrize("kind", ZONES)
def test_zones_that_pylance_merged_are_believed(uri: str, kind: str) -> None:
    pennon.open(uri).create_index("i", kind, **ZONES[kind])
    lance.write_dataset(rows(300, 900), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pennon.open(uri).explain("i = 40").indices
        assert pennon.open(uri).count("i = 40") == len(stock_rows(lance.dataset(uri), "i = 40"))
        pennon.open(uri).optimize_indices(num_indices_to_merge=1)


def test_merging_zones_does_not_make_damage_look_sound(uri: str) -> None:
    pennon.open(uri).create_index("i", "BLOOMFILTER", number_of_items=64)

    def change(opened: Opened) -> None:
        filters = opened.table["bloom_filter_data"].to_pylist()
        filters[2] = bytes(len(filters[2]))
        table = opened.table.drop_columns(["bloom_filter_data"])
        opened.table = table.append_column(opened.table.schema.field(4), pa.array(filters, pa.binary()))

    forged(uri, "bloomfilter.lance", change)
    lance.write_dataset(rows(300, 900), uri, mode="append")
    with pytest.warns(DamagedIndexWarning, match="built from the data"):
        pennon.open(uri).optimize_indices(num_indices_to_merge=1)
    assert pennon.open(uri).audit().ok


def changed(column: str) -> Any:
    """One bit in a code, a factor or an id."""

    def change(opened: Opened) -> None:
        at = opened.table.column_names.index(column)
        array = opened.table.column(at).combine_chunks()
        flat = array.flatten() if pa.types.is_fixed_size_list(array.type) else array
        words = flat.to_numpy().copy()
        words.view(np.uint8)[len(words) // 2] ^= 1
        items = pa.array(words, flat.type)
        new = pa.FixedSizeListArray.from_arrays(items, type=array.type) if len(flat) != len(array) else items
        opened.table = opened.table.set_column(at, opened.table.schema.field(at), new)

    return change


COLUMNS = {"FLAT": "flat", "PQ": "__pq_code", "SQ": "__sq_code", "RQ": "_rabit_codes"}


@pytest.mark.parametrize("column", ["codes", "_rowid"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_bit_of_a_partition(uri: str, kind: str, column: str) -> None:
    options: dict[str, Any] = OPTIONS.get(kind, {})
    pennon.open(uri).create_index("v", kind, num_partitions=3, **options)
    query = np.zeros(16, dtype=np.float32)
    expected = pennon.open(uri).search("v", query, use_index=False)
    column = COLUMNS[kind.rpartition("_")[2]] if column == "codes" else column
    forged(uri, "auxiliary.idx", changed(column))
    with pytest.warns(DamagedIndexWarning, match="rows that are not as they were written"):
        found = pennon.open(uri).search("v", query, nprobes=3)
    assert found["id"].to_pylist() == expected["id"].to_pylist()


def test_one_bit_of_a_graph(uri: str) -> None:
    pennon.open(uri).create_index("v", "IVF_HNSW_SQ", num_partitions=3)

    def change(opened: Opened) -> None:
        at = opened.table.column_names.index("_distance")
        lists = opened.table.column(at).combine_chunks()
        values = lists.flatten().to_numpy().copy()
        values[7] *= 2
        new = pa.ListArray.from_arrays(lists.offsets, pa.array(values), type=lists.type)
        opened.table = opened.table.set_column(at, opened.table.schema.field(at), new)

    forged(uri, "index.idx", change)
    with pytest.warns(DamagedIndexWarning, match="the graph of partition"):
        pennon.open(uri).search("v", np.zeros(16, dtype=np.float32), nprobes=3)


@pytest.mark.parametrize(("name", "number"), [("index.idx", 0), ("auxiliary.idx", 0), ("auxiliary.idx", 1)])
def test_models_that_changed(uri: str, name: str, number: int) -> None:
    pennon.open(uri).create_index("v", "IVF_PQ", num_partitions=3, num_sub_vectors=4)

    def change(opened: Opened) -> None:
        content = bytearray(opened.buffers[number])
        content[-1] ^= 1
        opened.buffers[number] = bytes(content)

    forged(uri, name, change)
    with pytest.warns(DamagedIndexWarning, match="global buffer"):
        pennon.open(uri).search("v", np.zeros(16, dtype=np.float32))


def test_files_of_two_segments(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("v", "IVF_SQ", name="a", num_partitions=3)
    table.create_index("v", "IVF_SQ", name="b", num_partitions=3)
    first, second = Path(uri).glob("_indices/*/auxiliary.idx")
    shutil.copy(first, second)
    record_size(Path(uri), second)
    SHARED_CACHE.clear()
    table, name = pennon.open(uri), "b"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name in ("a", "b"):
            table.search("v", np.zeros(16, dtype=np.float32), index=name)
    assert ["files of two segments" in str(each.message) for each in told] == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_what_stock_made_of_it_is_believed(uri: str, kind: str) -> None:
    """Stock may carry the metadata of its sources over to new files, whose digests they are not."""
    options: dict[str, Any] = OPTIONS.get(kind, {})
    pennon.open(uri).create_index("v", kind, name="x", num_partitions=3, **options)
    lance.dataset(uri).delete("id % 9 = 4")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)
    lance.write_dataset(rows(300, 900), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pennon.open(uri).search("v", np.zeros(16, dtype=np.float32), nprobes=3, index="x")
        pennon.open(uri).optimize_indices(num_indices_to_merge=1)
        pennon.open(uri).search("v", np.zeros(16, dtype=np.float32), nprobes=3, index="x")


def test_coverage_of_more_rows_than_there_are_entries(uri: str) -> None:
    pennon.open(uri).create_index("i", fragment_ids=[0, 1], batch_size=64)

    def claim(_: Any, indices: Any) -> None:
        indices.indices[0].fragment_bitmap = BitMap([0, 1, 2]).serialize()

    edit_newest(Path(uri), claim)
    with pytest.warns(DamagedIndexWarning, match="holds 6.. at most"):
        assert pennon.open(uri).count("i < 100") == len(stock_rows(lance.dataset(uri), "i < 100"))
