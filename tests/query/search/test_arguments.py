"""What a search may be asked, in which form, and what it answers with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.errors import ColumnNotFound, IndexNotFound, InvalidArgument, UnsupportedColumn
from pennon.index.vector.vectors import to_lists
from tests.support.neighbors import DIM, brute_force, check, index, queries, rows, write

QUERY = queries(1)[0]
ROWS = 900


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    table = rows(ROWS)
    halves = to_lists(np.ones((ROWS, 4), dtype=np.float16))
    bytes_ = pa.array([[1, 2]] * ROWS, pa.list_(pa.int8(), 2))
    nested = pa.StructArray.from_arrays([table["v"].combine_chunks(), table["id"].combine_chunks()], ["v", "n"])
    columns = {"half": halves, "bytes": bytes_, "list": table["v"].cast(pa.list_(pa.float32())), "inner": nested}
    for name, column in columns.items():
        table = table.append_column(name, column)
    path = write(tmp_path_factory.mktemp("arguments") / "t.lance", table)
    index(path, "IVF_FLAT", partitions=3)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    return path


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"column": "w"}, ColumnNotFound, "no column 'w'"),
        ({"column": "id"}, UnsupportedColumn, "fixed-size lists of float"),
        ({"column": "bytes", "query": [1, 2]}, UnsupportedColumn, "int8"),
        ({"column": "list"}, UnsupportedColumn, "fixed-size lists of float"),
        ({"query": [1.0] * 3}, InvalidArgument, "3 items, vectors of column 'v' have 16"),
        ({"query": []}, InvalidArgument, "0 items"),
        ({"query": 7.0}, InvalidArgument, "one vector"),
        ({"query": [QUERY, QUERY]}, InvalidArgument, "search_batch"),
        ({"query": ["a"] * DIM}, InvalidArgument, "not numbers"),
        ({"query": [None] * DIM}, InvalidArgument, "not numbers"),
        ({"query": [True] * DIM}, InvalidArgument, "not numbers"),
        ({"query": None}, InvalidArgument, "not numbers"),
        ({"query": [np.nan] * DIM}, InvalidArgument, "NaN"),
        ({"query": [np.inf] * DIM}, InvalidArgument, "NaN, infinite"),
        ({"query": [1e300] * DIM}, InvalidArgument, "too large for float"),
        ({"column": "half", "query": [1e6] * 4}, InvalidArgument, "too large for halffloat"),
        ({"query": [3e38] * DIM}, InvalidArgument, "beyond what float32 holds"),
        ({"query": [0] * DIM, "metric": "cosine"}, InvalidArgument, "length 0"),
        ({"metric": "jaccard"}, InvalidArgument, "unknown metric"),
        ({"metric": "hamming"}, InvalidArgument, "Use l2, cosine or dot"),
        ({"k": 0}, InvalidArgument, "k must be"),
        ({"k": 2.5}, InvalidArgument, "k must be"),
        ({"k": True}, InvalidArgument, "k must be"),
        ({"k": "10"}, InvalidArgument, "k must be"),
        ({"k": None}, InvalidArgument, "without k has no end"),
        ({"nprobes": "4"}, InvalidArgument, "nprobes must be"),
        ({"refine_factor": 1.5}, InvalidArgument, "refine_factor must be"),
        ({"ef": "64"}, InvalidArgument, "ef must be"),
        ({"column": 7}, InvalidArgument, "column must be text"),
        ({"metric": 2}, InvalidArgument, "metric must be text"),
        ({"index": 0}, InvalidArgument, "index must be text"),
        ({"use_index": "no"}, InvalidArgument, "use_index must be True or False"),
        ({"with_row_id": 1}, InvalidArgument, "with_row_id must be True or False"),
        ({"columns": "id"}, InvalidArgument, "columns takes a list, not 'id'"),
        ({"columns": [7]}, InvalidArgument, "names of columns, not 7"),
        ({"columns": {"double": "id * 2"}}, InvalidArgument, "columns takes a list"),
        ({"filter": 7}, InvalidArgument, "SQL text or a pyarrow expression, not int"),
        ({"nprobes": 0}, InvalidArgument, "nprobes must be"),
        ({"refine_factor": 0}, InvalidArgument, "refine_factor must be"),
        ({"ef": 9}, InvalidArgument, "Use ef >= 10"),
        ({"ef": 19, "refine_factor": 2}, InvalidArgument, "k times refine_factor"),
        ({"columns": ["id", "nope"]}, ColumnNotFound, "nope"),
        ({"index": "nope"}, IndexNotFound, "Its indices are: id_idx, x"),
        ({"index": "id_idx"}, InvalidArgument, "not a vector index on column 'v'"),
        ({"index": "x", "column": "half", "query": [1] * 4}, InvalidArgument, "not a vector index on column 'half'"),
        ({"index": "x", "metric": "dot"}, InvalidArgument, "for the metric l2, not dot"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(uri: str, arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    asked = {"column": "v", "query": QUERY} | arguments
    with pytest.raises(error, match=says):
        pennon.open(uri).search(**asked)
    with pytest.raises(error, match=says):
        pennon.open(uri).explain_search(**asked)


def test_an_expression_filters_like_its_sql(uri: str) -> None:
    table, filter = pennon.open(uri), (pc.field("id") >= 100) & (pc.field("id") < 300)
    expected = table.search("v", QUERY, filter="id >= 100 AND id < 300")
    assert table.search("v", QUERY, filter=filter).equals(expected)
    assert table.search_batch("v", [QUERY], filter=filter).drop_columns(["query_index"]).equals(expected)
    assert "id_idx" in str(table.explain_search("v", QUERY, filter=filter))


@pytest.mark.parametrize("given", [[QUERY, QUERY[:3]], [[QUERY]], QUERY, np.zeros((2, 3)), [QUERY, [np.nan] * DIM]])
def test_wrong_batches_are_refused(uri: str, given: Any) -> None:
    with pytest.raises(InvalidArgument):
        pennon.open(uri).search_batch("v", given)


def test_the_faulty_query_of_a_batch_is_named(uri: str) -> None:
    with pytest.raises(InvalidArgument, match="query 1 has length 0"):
        pennon.open(uri).search_batch("v", [QUERY, QUERY * 0], metric="cosine")


LISTS = to_lists(np.stack([QUERY, -QUERY]))


@pytest.mark.parametrize(
    "query",
    [QUERY.tolist(), QUERY.astype(np.float64), pa.array(QUERY), LISTS[0], pa.array([QUERY.tolist()])[0], tuple(QUERY)],
    ids=["list", "float64", "array", "fixed list", "list scalar", "tuple"],
)
def test_a_query_in_any_form(uri: str, query: Any) -> None:
    check(pennon.open(uri).search("v", query), brute_force(uri, QUERY, 10))


@pytest.mark.parametrize(
    "many",
    [
        [QUERY, -QUERY],
        np.stack([QUERY, -QUERY]),
        LISTS,
        pa.chunked_array([LISTS[:1], LISTS[1:]]),
        LISTS.cast(pa.list_(pa.float32())),
        [QUERY.tolist(), (-QUERY).tolist()],
    ],
    ids=["arrays", "matrix", "fixed lists", "chunks", "lists", "plain lists"],
)
def test_queries_in_any_form(uri: str, many: Any) -> None:
    found = pennon.open(uri).search_batch("v", many, 6)
    assert found["query_index"].to_pylist() == [0] * 6 + [1] * 6
    for number, query in enumerate((QUERY, -QUERY)):
        check(found.slice(6 * number, 6), brute_force(uri, query, 6))


def test_an_empty_batch_has_the_schema_of_any_other(uri: str) -> None:
    table = pennon.open(uri)
    for empty in ([], np.empty((0, DIM)), LISTS[:0]):
        found = table.search_batch("v", empty, columns=["word"], with_row_id=True)
        assert found.num_rows == 0
        assert found.schema == table.search_batch("v", [QUERY], columns=["word"], with_row_id=True).schema


def test_columns_come_in_the_order_of_stock(uri: str) -> None:
    table, dataset = pennon.open(uri), lance.dataset(uri)
    nearest = {"column": "v", "q": QUERY, "k": 5, "nprobes": 3}
    for columns in (
        ["id", "_distance"],
        ["word", "v", "_distance", "id"],
        ["_distance"],
        ["_rowaddr", "id", "_distance"],
    ):
        for ids in ({}, {"with_row_id": True}, {"with_row_id": True, "with_row_address": True}):
            if ids and "_rowaddr" in columns:
                continue  # stock moves it to the end then
            expected = dataset.scanner(nearest=nearest, columns=columns, **ids).to_table()
            found = table.search("v", QUERY, 5, nprobes=3, columns=columns, **ids)
            assert found.schema == expected.schema
            at = expected.column_names.index("_distance")
            assert found.remove_column(at).equals(expected.remove_column(at))
    everything = dataset.scanner(nearest=nearest).to_table()
    assert table.search("v", QUERY, 5, nprobes=3).schema == everything.schema
    assert table.search("v", QUERY, 5, columns=["id"]).column_names == ["id", "_distance"]
    assert table.search("v", QUERY, 5, columns=[]).column_names == ["_distance"]
    batch = table.search_batch("v", [QUERY], 5, columns=["id"], with_row_address=True)
    assert batch.column_names == ["query_index", "id", "_distance", "_rowaddr"]
    assert [str(field.type) for field in batch.schema] == ["int32", "int64", "float", "uint64"]


@pytest.mark.parametrize("k", [5, 500])
def test_nested_columns(uri: str, k: int) -> None:
    table = pennon.open(uri)
    found = table.search("inner.v", QUERY, k, columns=["id", "inner.n", "word"])
    assert found.column_names == ["id", "inner.n", "word", "_distance"]
    assert found["inner.n"].to_pylist() == found["id"].to_pylist()
    check(found, brute_force(uri, QUERY, k))
    check(table.search("inner.v", QUERY, k, filter="part < 7"), brute_force(uri, QUERY, k, filter="part < 7"))


def test_ties_come_by_address(tmp_path: Path) -> None:
    vectors = np.zeros((60, DIM), dtype=np.float32)
    vectors[::2] = 1
    uri = write(tmp_path / "t.lance", pa.table({"id": np.arange(60)[::-1], "v": to_lists(vectors)}))
    for _ in range(2):
        found = pennon.open(uri).search("v", vectors[1], 60, columns=[], with_row_address=True)["_rowaddr"].to_pylist()
        assert found == sorted(found[:30]) + sorted(found[30:])
        index(uri, "IVF_FLAT", partitions=2)


def test_which_index_is_used(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(600))
    index(uri, "IVF_FLAT", "cosine", "first")
    lance.write_dataset(rows(100, 600, seed=1), uri, mode="append")
    index(uri, "IVF_SQ", "dot", "second")
    index(uri, "IVF_PQ", "dot", "third")
    table = pennon.open(uri)

    def used(**options: Any) -> tuple[str | None, str, int]:
        plan = table.explain_search("v", QUERY, **options)
        return plan.index, plan.metric, plan.measured_rows

    assert used() == ("second", "dot", 0)  # covers all rows, and was there before the third
    assert used(metric="cosine") == ("first", "cosine", 100)
    assert used(metric="l2") == (None, "l2", 700)
    assert used(index="first") == ("first", "cosine", 100)
    assert used(index="third", metric="DOT") == ("third", "dot", 0)
    assert used(use_index=False) == (None, "dot", 700)
    for metric in ("l2", "cosine"):
        check(table.search("v", QUERY, metric=metric, nprobes=99), brute_force(uri, QUERY, 10, metric))


def test_without_an_index_l2_is_measured(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(500))
    table = pennon.open(uri)
    check(table.search("v", QUERY), brute_force(uri, QUERY, 10))
    check(table.search("v", QUERY, filter="part = 1"), brute_force(uri, QUERY, 10, filter="part = 1"))
    for metric in ("cosine", "dot"):
        found = table.search_batch("v", queries(30), metric=metric)
        check(found.slice(0, 10), brute_force(uri, queries(30)[0], 10, metric))


def test_an_empty_table(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(10))
    lance.dataset(uri).delete("true")
    assert pennon.open(uri).search("v", QUERY).num_rows == 0
    assert pennon.open(uri).search_batch("v", [QUERY], filter="id = 3").num_rows == 0
    empty = str(tmp_path / "e.lance")
    lance.write_dataset(rows(3).schema.empty_table(), empty)
    assert pennon.open(empty).search("v", QUERY).column_names == ["id", "part", "word", "v", "_distance"]
