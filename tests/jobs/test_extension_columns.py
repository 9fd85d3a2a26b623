"""UUIDs and tensors of one dimension are indexed as what they are stored as, 16 bytes and vectors: pylance's indices on
them are used and kept up, and pylance uses those that Pennon builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.schema import stored_type
from pennon.testing.engines import in_process

DIM = 8
POLICIES = ["immediate", "deferred", "drop"]


def keys(count: int, start: int) -> list[bytes | None]:
    drawn = np.random.default_rng(start).bytes(16 * count)
    return [None if i % 50 == 7 else drawn[16 * i : 16 * i + 16] for i in range(count)]


def rows(count: int, start: int) -> pa.Table:
    items = np.random.default_rng(start).standard_normal(count * DIM).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(items, DIM, mask=pa.array(np.arange(count) % 90 == 4))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(keys(count, start), pa.binary(16)))
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "uuid": uuids,
            "inner": pa.StructArray.from_arrays([uuids], ["uuid"]),
            "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [DIM]), vectors),
        }
    )


@pytest.fixture(params=["2.0", "2.2"])
def uri(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(600, 0), uri, max_rows_per_file=200, data_storage_version=request.param)
    return uri


def append_and_delete(uri: str) -> None:
    lance.write_dataset(rows(150, 600), uri, mode="append")
    lance.dataset(uri).delete("id % 5 = 0")


def filters(column: str = "uuid") -> list[str]:
    held = sorted(key for key in keys(600, 0) if key is not None)
    one, low, high = (f"X'{held[at].hex()}'" for at in (100, 200, 400))
    return [
        f"{column} = {one}",
        f"{column} IN ({one}, {low}, {high}, X'{'00' * 16}')",
        f"{column} > {high}",
        f"{column} BETWEEN {low} AND {high}",
        f"NOT ({column} = {one})",
        f"{column} IS NULL",
        f"{column} IS NOT NULL",
    ]


def scanned(uri: str, filter: str) -> list[int]:
    found = lance.dataset(uri).scanner(filter=filter, columns=["id"], use_scalar_index=False).to_table()
    return sorted(found["id"].to_pylist())


def assert_answers(uri: str, column: str = "uuid") -> None:
    """Pennon through its index, and pylance through it, find what a scan finds."""
    table = pennon.open(uri)
    for filter in filters(column):
        expected = scanned(uri, filter)
        assert sorted(table.scan(filter, columns=["id"])["id"].to_pylist()) == expected
        assert table.explain(filter).indices
        indexed = lance.dataset(uri).to_table(filter=filter, columns=["id"])
        assert sorted(indexed["id"].to_pylist()) == expected


def keep_up(uri: str, remap: str) -> None:
    with in_process():
        table = pennon.open(uri)
        table.optimize_indices()
        assert all(index.coverage == 1.0 for index in table.indices())
        table.compact(remap=remap)
        table.catch_up_indices()
        table.trim_fragment_reuse()
        assert table.fragment_reuse() is None
        table.optimize_indices()
        assert all(index.coverage == 1.0 for index in table.indices())
        report = table.audit()
        assert report.ok, str(report)
        assert report.rows_compared


@pytest.mark.parametrize("remap", POLICIES)
def test_a_uuid_tree_of_pylance_is_used_and_kept_up(uri: str, remap: str) -> None:
    lance.dataset(uri).create_scalar_index("uuid", "BTREE")
    assert_answers(uri)
    append_and_delete(uri)
    assert_answers(uri)
    keep_up(uri, remap)
    assert_answers(uri)


@pytest.mark.parametrize("column", ["uuid", "inner.uuid"])
def test_pylance_uses_a_uuid_tree_of_pennon(uri: str, column: str) -> None:
    with in_process():
        pennon.open(uri).create_index(column, ranges=3, batch_size=64, rows_per_task=100)
    assert "ScalarIndexQuery" in lance.dataset(uri).scanner(filter=filters(column)[0]).explain_plan()
    assert_answers(uri, column)
    append_and_delete(uri)
    lance.dataset(uri).optimize.optimize_indices()
    assert_answers(uri, column)
    keep_up(uri, "immediate")


def test_a_damaged_uuid_tree_is_repaired(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("uuid", "BTREE")
    [pages] = Path(uri).glob("_indices/*/page_data.lance")
    pages.write_bytes(pages.read_bytes()[:-1])
    with in_process():
        table = pennon.open(uri)
        assert not table.audit().ok
        assert table.audit(repair=True).ok
    assert_answers(uri)


def test_a_uuid_column_is_updated_in_its_own_type(uri: str) -> None:
    with in_process():
        table = pennon.open(uri)
        table.create_index("uuid")
        new = f"X'{'ab' * 16}'"
        table.update_column("uuid", new, where="id < 10")
        table.optimize_indices()
    assert lance.dataset(uri).schema.field("uuid").type == pa.uuid()
    assert scanned(uri, f"uuid = {new}") == list(range(10))
    assert_answers(uri)
    assert pennon.open(uri).count(f"uuid = {new}") == 10


QUERY = np.linspace(-1, 1, DIM).astype(np.float32)


def assert_nearest(uri: str) -> None:
    """Every row is a candidate and measured exactly, so that there is one right answer."""
    asked: dict[str, Any] = {"column": "tensor", "q": QUERY, "k": 10, "nprobes": 4, "refine_factor": 100}
    exact = lance.dataset(uri).to_table(nearest={**asked, "use_index": False}, columns=["id", "_distance"])
    expected = exact["id"].to_pylist()
    table = pennon.open(uri)
    scalar = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [DIM]), pa.FixedSizeListArray.from_arrays(QUERY, DIM)
    )
    for query in (QUERY, scalar[0]):
        found = table.search("tensor", query, k=10, nprobes=4, refine_factor=100)
        assert found["id"].to_pylist() == expected
    assert table.search("tensor", QUERY, k=10, use_index=False)["id"].to_pylist() == expected
    assert table.explain_search("tensor", QUERY).segments
    indexed = lance.dataset(uri).to_table(nearest=asked, columns=["id", "_distance"])
    assert indexed["id"].to_pylist() == expected


@pytest.mark.parametrize("remap", POLICIES)
def test_an_index_of_pylance_on_tensors_is_used_and_kept_up(uri: str, remap: str) -> None:
    lance.dataset(uri).create_index("tensor", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
    assert_nearest(uri)
    append_and_delete(uri)
    assert_nearest(uri)
    keep_up(uri, remap)
    assert_nearest(uri)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ"])
def test_pylance_uses_an_index_of_pennon_on_tensors(uri: str, kind: str) -> None:
    with in_process():
        pennon.open(uri).create_index("tensor", kind, num_partitions=4)
    assert_nearest(uri)
    append_and_delete(uri)
    # Graphs do not follow deferred compactions that drop deleted rows.
    keep_up(uri, "immediate" if "HNSW" in kind else "deferred")
    assert_nearest(uri)


def test_a_tensor_column_is_updated_in_its_own_type(uri: str) -> None:
    with in_process():
        table = pennon.open(uri)
        table.create_index("tensor", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
        table.update_column("tensor", "NULL", where="id < 100")
        table.optimize_indices()
        assert table.audit().ok
    dataset = lance.dataset(uri)
    assert dataset.schema.field("tensor").type == pa.fixed_shape_tensor(pa.float32(), [DIM])
    assert dataset.count_rows("tensor IS NULL AND id < 100") == 100
    assert_nearest(uri)


def test_only_uuids_and_tensors_of_one_dimension_stand_for_their_storage() -> None:
    assert stored_type(pa.uuid()) == pa.binary(16)
    assert stored_type(pa.fixed_shape_tensor(pa.float16(), [3])) == pa.list_(pa.float16(), 3)
    for kept in (pa.fixed_shape_tensor(pa.float32(), [1, 3]), pa.bool8(), pa.string(), pa.list_(pa.float32(), 3)):
        assert stored_type(kept) == kept
