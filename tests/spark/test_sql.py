"""Table functions and views in SQL."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as st
from pyspark.sql.udtf import AnalyzeArgument

import pennon
import pennon.spark
from pennon.errors import InvalidArgument, PennonError
from pennon.index.vector.vectors import to_lists
from pennon.spark.sql.registry import analyzed


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def uri(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two thirds covered by a vector index and a B-tree."""
    path = str(tmp_path_factory.mktemp("sql") / "t.lance")
    table = pa.table({"id": range(600), "lang": ["de", "en", "fr"] * 200, "v": to_lists(vectors)})
    lance.write_dataset(table.slice(0, 400), path, max_rows_per_file=200)
    lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=4, metric="l2")
    lance.dataset(path).create_scalar_index("lang", "BTREE")
    lance.write_dataset(table.slice(400), path, mode="append")
    return path


def array(vector: np.ndarray) -> str:
    return f"array({', '.join(map(str, vector.tolist()))})"


def nearest(vectors: np.ndarray, query: np.ndarray, k: int, keep: slice = slice(None)) -> list[int]:
    distances = ((vectors - query) ** 2).sum(axis=1)
    chosen = np.arange(len(vectors))[keep]
    return chosen[distances[chosen].argsort()[:k]].tolist()


def test_search_equals_brute_force(spark: SparkSession, uri: str, vectors: np.ndarray) -> None:
    query = vectors[7] + 0.1
    found = spark.sql(f"SELECT * FROM pennon_search('{uri}', 'v', {array(query)}, 5, nprobes => 4)")
    assert found.schema.simpleString() == "struct<id:bigint,lang:string,v:array<float>,_distance:float>"
    rows = found.collect()
    assert [row.id for row in rows] == nearest(vectors, query, 5)
    assert [row._distance for row in rows] == pytest.approx([((vectors[row.id] - query) ** 2).sum() for row in rows])
    assert rows[0].v == vectors[rows[0].id].tolist()
    named = spark.sql(
        f"""SELECT * FROM pennon_search(uri => '{uri}', column => 'v', query => {array(query)}, k => 3, nprobes => 4,
            refine_factor => 2, filter => "lang = 'en'", columns => array('id'), with_row_id => true)"""
    ).collect()
    assert [row.asDict().keys() for row in named] == [{"id": 0, "_rowid": 0, "_distance": 0}.keys()] * 3
    assert [row.id for row in named] == nearest(vectors, query, 3, slice(1, None, 3))


def test_text_and_hybrid_searches(spark: SparkSession, uri: str, vectors: np.ndarray, tmp_path: Path) -> None:
    path = str(tmp_path / "texts.lance")
    bodies = [f"word{number % 7} common" + " rare" * (number % 50 == 3) for number in range(200)]
    lance.write_dataset(pa.table({"id": range(200), "body": bodies, "v": to_lists(vectors[:200])}), path)
    table = pennon.open(path)
    table.create_index("body", "INVERTED", with_position=True)
    found = spark.sql(f"SELECT * FROM pennon_search_text('{path}', 'body', 'rare word3', 5, columns => array('id'))")
    assert found.schema.simpleString() == "struct<id:bigint,_score:float>"
    expected = table.search_text("body", "rare word3", 5, columns=["id"])
    assert [tuple(row) for row in found.collect()] == [tuple(row.values()) for row in expected.to_pylist()]
    many = spark.sql(
        f"""SELECT q.text, found.id FROM (SELECT 'rare' AS text UNION ALL SELECT '"common rare"' AS text) q,
            LATERAL pennon_search_text('{path}', NULL, q.text, 9, filter => 'id > 60', columns => array('id')) found"""
    )
    assert sorted(map(tuple, many.collect())) == [(t, n) for t in ('"common rare"', "rare") for n in (103, 153)]
    query = array(vectors[3])
    hybrid = spark.sql(
        f"SELECT * FROM pennon_search_hybrid('{path}', 'v', {query}, 'body', 'rare', 3, columns => array('id'))"
    )
    ranks = "_vector_rank:int,_text_rank:int"
    assert (
        hybrid.schema.simpleString() == f"struct<id:bigint,_distance:float,_score:float,{ranks},_relevance_score:float>"
    )
    rows = table.search_hybrid(("v", vectors[3]), ("body", "rare"), 3, columns=["id"]).to_pylist()
    assert [row.asDict() for row in hybrid.collect()] == [pytest.approx(row) for row in rows]
    assert rows[0]["id"] == 3
    arguments = f"'{path}', 'v', {query}, 'body', 'rare', 3"
    plan = [row.plan for row in spark.sql(f"SELECT * FROM pennon_explain_search_hybrid({arguments})").collect()]
    assert plan == [
        *str(table.explain_search("v", vectors[3], 3)).splitlines(),
        *str(table.explain_search_text("body", "rare", 3)).splitlines(),
    ]


def test_recall(spark: SparkSession, uri: str, vectors: np.ndarray) -> None:
    """Of 1: what was measured on a sample is never certain enough, so every row is measured."""
    query = vectors[7] + 0.1
    call = f"search('{uri}', 'v', {array(query)}, 5, recall => 1.0)"
    assert [row.id for row in spark.sql(f"SELECT * FROM pennon_{call}").collect()] == nearest(vectors, query, 5)
    plan = "\n".join(row.plan for row in spark.sql(f"SELECT * FROM pennon_explain_{call}").collect())
    assert "  recall   1 expected, 1 asked" in plan or "  recall   1, 1 asked" in plan


def test_bounds_and_all_rows_within_them(spark: SparkSession, uri: str, vectors: np.ndarray) -> None:
    distances = np.sort(((vectors - vectors[3]) ** 2).sum(axis=1))
    lower, upper = (float(distances[at] + distances[at + 1]) / 2 for at in (2, 9))
    bounded = f"pennon_search('{uri}', 'v', {array(vectors[3])}, columns => array('id'), distance_range => "
    first = spark.sql(f"SELECT id FROM {bounded} array({lower}, {upper}), k => 2, offset => 1)").collect()
    assert [row.id for row in first] == nearest(vectors, vectors[3], 6)[4:6]
    every = spark.sql(f"SELECT id FROM {bounded} array(NULL, {upper}), k => NULL)").collect()
    assert [row.id for row in every] == nearest(vectors, vectors[3], 10)


def test_a_search_for_every_row_of_a_query(spark: SparkSession, uri: str, vectors: np.ndarray) -> None:
    found = spark.sql(
        f"""SELECT q.id AS q, near.id AS id
            FROM (SELECT {array(vectors[3])} AS v, 3 AS id UNION ALL SELECT {array(vectors[4])} AS v, 4 AS id) q,
            LATERAL pennon_search('{uri}', 'v', q.v, 2, nprobes => 4, columns => array('id')) near"""
    )
    expected = [(q, near) for q in (3, 4) for near in nearest(vectors, vectors[q], 2)]
    assert sorted(map(tuple, found.collect())) == sorted(expected)


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("search", {"column": "w", "query": [1, 2]}, "has no column 'w'. Did you mean"),
        ("search", {"column": "v", "query": "text"}, "query must be an array of numbers, not string"),
        ("search", {"column": "v", "query": [1], "nprobs": 1}, "searches take no option 'nprobs'"),
        ("search", {"column": "v", "query": [1], "columns": ["idd"]}, "has no top-level column 'idd'"),
        ("search", {"column": "v", "query": [1, 2]}, "a query vector has 2 items, vectors of column 'v' have 8"),
        ("search", {"column": "v", "query": [1] * 8, "k": 0}, "k must be"),
        ("search", {"column": "v", "query": [1] * 8, "filter": "idd = 3"}, "does not have: idd"),
        ("search", {"column": "v", "query": [1] * 8, "recall": Decimal("1.5")}, "recall must be a number above 0"),
        ("search", {"column": "v", "query": [1] * 8, "recall": Decimal("0.5"), "ef": 9}, "recall sets ef"),
        ("explain_search", {"column": "v", "query": [1, 2]}, "a query vector has 2 items"),
        ("search_text", {"column": "lang", "query": "x", "fuzzyness": 1}, "text searches take no option 'fuzzyness'"),
        ("search_text", {"column": "id", "query": "x"}, "which text searches do not read"),
        (
            "search_hybrid",
            {"vector_column": "v", "vector": "x", "text_column": "lang", "text": "x"},
            "array of numbers",
        ),
        (
            "search_hybrid",
            {"vector_column": "v", "vector": [1], "text_column": "id", "text": "x"},
            "a query vector has",
        ),
        (
            "search_hybrid",
            {"vector_column": "v", "vector": [1], "text_column": "lang", "text": "x", "recall": Decimal("2.5")},
            "recall must be a number above 0",
        ),
        ("indices", {"uri": "/nowhere.lance"}, "there is no Lance table at"),
        ("indices", {"uri": None}, "the address of the table is missing"),
        ("indices", {"version": 99}, "there is no version 99 of the table"),
        ("indices", {"filter": "x"}, "pennon_indices has no argument 'filter'"),
        ("scan", {"fliter": "x"}, "pennon_scan has no argument 'fliter'. Did you mean filter?"),
        ("indices", {"storage_options": {"aws_secret_access_key": "x"}}, "is a secret"),
        ("explain", {"filter": "idd = 3"}, "names a column that the table does not have: idd"),
        ("scan", {"filter": "id ="}, "filter"),
        ("scan", {"columns": ["idd"]}, "has no top-level column 'idd'"),
        ("scan", {"limit": "x"}, "limit must be a whole number"),
        ("lookup", {"column": "idd", "value": 3}, "has no column 'idd'"),
        ("lookup", {"column": "id", "value": "abc"}, "a value does not fit it"),
        ("lookup", {"column": "id", "value": [1, 2.5]}, "a value does not fit it"),
    ],
)
def test_errors_come_when_a_query_is_analyzed(uri: str, name: str, given: dict[str, Any], problem: str) -> None:
    """All arguments are constants: no task runs."""
    arguments = {key: constant(value) for key, value in {"uri": uri, **given}.items()}
    with pytest.raises(PennonError) as caught:
        analyzed({}, f"pennon_{name}", (), arguments)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["uri", "column", "columns", "version"])
def test_what_must_be_constant(uri: str, name: str) -> None:
    arguments = {"uri": constant(uri), "column": constant("id"), "value": constant(3)}
    arguments[name] = AnalyzeArgument(st.StringType(), None, isTable=False, isConstantExpression=False)
    with pytest.raises(InvalidArgument, match=f"the argument {name} of pennon_lookup must be a constant"):
        analyzed({}, "pennon_lookup", (), arguments)


def constant(value: Any) -> AnalyzeArgument:
    types = {str: st.StringType(), int: st.IntegerType(), list: st.ArrayType(st.DoubleType())}
    return AnalyzeArgument(types.get(type(value), st.NullType()), value, isTable=False, isConstantExpression=True)


def test_errors_are_short(spark: SparkSession, uri: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"SELECT * FROM pennon_search('{uri}', 'v', array(1, 2), 3)")
    assert "a query vector has 2 items" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 14


def test_lookups_and_scans(spark: SparkSession, uri: str) -> None:
    found = spark.sql(f"SELECT * FROM pennon_lookup('{uri}', 'lang', 'en', array('id'))")
    assert found.schema.simpleString() == "struct<id:bigint>"
    assert sorted(row.id for row in found.collect()) == list(range(1, 600, 3))
    several = spark.sql(
        f"""SELECT q.id AS q, f.id, f.lang FROM (SELECT 7 AS id UNION ALL SELECT 8 UNION ALL SELECT -1) q,
            LATERAL pennon_lookup('{uri}', 'id', array(q.id, NULL, q.id + 1), array('id', 'lang')) f ORDER BY q, f.id"""
    )
    assert [(row.q, row.id) for row in several.collect()] == [(-1, 0), (7, 7), (7, 8), (8, 8), (8, 9)]
    scanned = spark.sql(
        f"""SELECT * FROM pennon_scan('{uri}', filter => "lang = 'de' AND id < 10", columns => array('id'), limit => 3,
            with_row_address => true)"""
    )
    assert [tuple(row) for row in scanned.collect()] == [(0, 0), (3, 3), (6, 6)]
    assert spark.sql(f"SELECT * FROM pennon_scan('{uri}')").count() == 600


def test_the_inventory(spark: SparkSession, uri: str) -> None:
    rows = spark.sql(f"SELECT * FROM pennon_indices('{uri}') ORDER BY name").collect()
    assert [(row.name, row.fields, row.index_type, row.num_segments) for row in rows] == [
        ("lang_idx", ["lang"], "BTREE", 1),
        ("v_idx", ["v"], "IVF_FLAT", 1),
    ]
    for row in rows:
        assert (row.num_indexed_fragments, row.num_unindexed_fragments) == (2, 1)
        assert (row.num_indexed_rows, row.num_unindexed_rows) == (400, 200)
        assert row.size_bytes > 0
    assert spark.sql(f"SELECT * FROM pennon_indices('{uri}', version => 1)").count() == 0


def test_plans_in_sql(spark: SparkSession, uri: str) -> None:
    lines = [
        row.plan for row in spark.sql(f"SELECT * FROM pennon_explain('{uri}', filter => \"lang = 'en'\")").collect()
    ]
    assert lines == str(pennon.open(uri).explain("lang = 'en'")).splitlines()
    query = "array_repeat(1.0, 8)"
    lines = [row.plan for row in spark.sql(f"SELECT * FROM pennon_explain_search('{uri}', 'v', {query}, 3)").collect()]
    assert lines == str(pennon.open(uri).explain_search("v", [1.0] * 8, 3)).splitlines()


def test_storage_options_of_the_session_stay_out_of_plans(
    spark: SparkSession, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pennon.spark.register(spark, storage_options={"secret_key": "topsecretvalue"})
    try:
        found = spark.sql(f"SELECT * FROM pennon_search('{uri}', 'v', array(1, 2, 3, 4, 5, 6, 7, 8), 3)")
        found.explain(True)
        assert found.count() == 3
        assert "topsecretvalue" not in capsys.readouterr().out
    finally:
        pennon.spark.register(spark)


def test_views_read_and_take_rows(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(5), "s": list("abcde")}), uri)
    view = f"CREATE OR REPLACE TEMPORARY VIEW t USING pennon OPTIONS (path '{uri}')"
    spark.sql(view)
    assert [row.s for row in spark.sql("SELECT s FROM t WHERE id = 3").collect()] == ["d"]
    spark.sql("INSERT INTO t SELECT id + 5, upper(s) FROM t")
    assert spark.sql("SELECT * FROM t").count() == 5, "a view stays at its version"
    spark.sql(view)
    assert spark.sql("SELECT * FROM t").count() == 10
    spark.sql("INSERT OVERWRITE t VALUES (1, 'x')")
    assert lance.dataset(uri).to_table().to_pylist() == [{"id": 1, "s": "x"}]
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW name USING pennon"):
        spark.sql(f"CREATE TABLE pennon_t USING pennon OPTIONS (path '{uri}')")
