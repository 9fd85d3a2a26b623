"""What comes through the data source equals a full scan, and only what the planner names is read."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

import pennon
import pennon.spark
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.scan import part_size
from pennon.query.scan import tasks as parts
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part
from pennon.spark.source import PennonSource
from tests.support.cases import amounts
from tests.support.tables import every_type, full_scan, write_every_type


def load(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    return spark.read.format("pennon").options(**options).load(uri)


def ids(frame: DataFrame) -> list[int]:
    return sorted(frame.select("id").toArrow()["id"].to_pylist())


def planned(uri: str, **options: str) -> list[Part]:
    """What the driver hands out."""
    source = PennonSource(CaseInsensitiveDict(path=uri, **options))
    return [partition.value for partition in source.reader(source.schema()).partitions()]


def rows_of(count: int, start: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed + start)
    k = [None if v == 0 else int(v) for v in rng.integers(0, 40, count)]
    s = [None if v == 0 else f"s{v}'" for v in rng.integers(0, 15, count)]
    f = [None if v == 0 else float("nan") if v == 1 else -0.0 if v == 2 else v / 4 for v in rng.integers(0, 20, count)]
    return pa.table({"id": range(start, start + count), "k": pa.array(k, pa.int64()), "s": s, "f": pa.array(f)})


def make(path: Path, history: str) -> str:
    """Two indexed columns; what happened after the indices were built is what the test is about."""
    uri = str(path / "t.lance")
    lance.write_dataset(rows_of(400, 0), uri, max_rows_per_file=100, enable_stable_row_ids=history == "stable")
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    pennon.open(uri).create_index("s", batch_size=16)
    lance.dataset(uri).delete("id % 9 = 4")
    if history == "deferred":
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True)
        lance.dataset(uri).delete("k = 7")
    if history == "stable":
        lance.dataset(uri).update({"k": "k + 1"}, where="id % 5 = 1")
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=200)
    lance.write_dataset(rows_of(100, 400), uri, mode="append")
    return uri


ALL = list(HealthCheck)
ATOMS = st.one_of(
    st.builds("k {} {}".format, st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]), st.integers(-1, 41)),
    st.builds(
        "f {} {}".format, st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from(["0.0", "1.25", "double('nan')"])
    ),
    st.builds("s {} 's{}\\''".format, st.sampled_from(["=", "!=", "<", ">="]), st.integers(0, 15)),
    st.builds("k IN ({}, {}, {})".format, *[st.integers(0, 40)] * 3),
    st.builds("k NOT IN ({}, {})".format, *[st.integers(0, 40)] * 2),
    st.sampled_from(
        ["k IS NULL", "s IS NOT NULL", "s LIKE 's1%'", "s LIKE '%1%'", "f IS NULL", "k % 2 = 0", "isnan(f)"]
    ),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("examples", amounts(3, 20))
@pytest.mark.parametrize("history", ["partial", "deferred", "stable"])
def test_random_filters_equal_a_full_scan(spark: SparkSession, tmp_path: Path, history: str, examples: int) -> None:
    uri = make(tmp_path, history)
    oracle = spark.createDataFrame(lance.dataset(uri).to_table())
    frame = load(spark, uri)
    assert ids(frame) == ids(oracle)

    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=ALL)
    @given(st.lists(CONDITIONS, min_size=4, max_size=4))
    def check(conditions: list[str]) -> None:
        """Several filters in one job, all over the same DataFrame."""

        def answers(rows: list[DataFrame]) -> list[tuple[int, int]]:
            tagged = [rows[n].filter(c).selectExpr(f"{n} AS filter", "id") for n, c in enumerate(conditions)]
            found = tagged[0]
            for more in tagged[1:]:
                found = found.unionAll(more)
            return sorted(map(tuple, found.collect()))

        assert answers([frame] * 4) == answers([oracle] * 4)

    check()


def test_every_type_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=400, rows_per_file=100)
    stored = lance.dataset(uri).to_table().sort_by("id")
    read = load(spark, uri).orderBy("id").toArrow()
    assert read.schema.names == stored.schema.names
    for name in stored.schema.names:
        expected = stored[name].to_pylist()
        if name == "time":
            expected = [None if v is None else v.isoformat(timespec="microseconds") for v in expected]
        if name == "u64":
            expected = [None if v is None else Decimal(v) for v in expected]
        if name == "ts_ns":
            expected = [None if v is None else v.to_pydatetime() for v in expected]
        found = [v.replace(tzinfo=None) if name == "ts_tz" and v else v for v in read[name].to_pylist()]
        if name == "ts_tz":
            expected = [v.replace(tzinfo=None) if v else v for v in expected]
        assert str(found) == str(expected), name  # as text, since no NaN equals another


def test_nested_types_and_vectors_come_through(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    deep = pa.struct([("a", pa.struct([("b", pa.list_(pa.uint8()))]))])
    rows = pa.table(
        {
            "v": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
            "h": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float16(), 2)),
            "tags": pa.array([["a"], [], None], pa.list_(pa.large_string())),
            "color": pa.array(["red", None, "red"]).dictionary_encode(),
            "deep": pa.array([{"a": {"b": [1]}}, None, {"a": None}], deep),
        }
    )
    lance.write_dataset(rows, uri)
    read = load(spark, uri).toArrow()
    assert read.to_pylist() == rows.to_pylist()
    assert load(spark, uri).filter("deep.a.b IS NOT NULL").count() == 1


def test_a_point_filter_reads_the_row_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": np.random.default_rng(0).permutation(200_000)}), uri, max_rows_per_file=20_000)
    assert sum(part.rows for part in planned(uri)) == 200_000
    assert sum(part.rows for part in planned(uri, filter="id = 777")) == 200_000
    pennon.open(uri).create_index("id")
    [part] = planned(uri, filter="id = 777")
    assert (part.rows, len(part.fragments), part.exact) == (1, 1, True)
    assert ids(load(spark, uri, filter="id = 777")) == [777]
    assert planned(uri, filter="id = -5") == []
    assert ids(load(spark, uri, filter="id = -5")) == []
    told = pennon.spark.explain(uri, "id = 777")
    assert (told.rows, told.fragments, len(told.partitions)) == (1, 1, 1)
    assert "read     1 of 200,000 rows in 1 fragment, by 1 partition" in str(told)
    lance.write_dataset(pa.table({"id": range(200_000, 200_050)}), uri, mode="append")
    assert [part.rows for part in planned(uri, filter="id = 777")] == [1, 50]


def test_a_frame_may_be_used_again(spark: SparkSession, tmp_path: Path) -> None:
    """Spark holds on to filters that were pushed for one query when the same frame is used in another."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(100)}), uri)
    frame = load(spark, uri)
    assert [frame.filter("id = 3").count(), frame.count(), frame.filter("id < 5").count()] == [1, 100, 5]
    assert frame.filter("id = 3").unionAll(frame.filter("id < 10")).count() == 11


def test_scanned_fragments_are_dealt_out_by_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of(1000, 0), uri, max_rows_per_file=100)
    lance.dataset(uri).delete("id >= 100 AND id < 190")
    dealt = planned(uri, rows_per_partition="300")
    assert [(part.fragments, part.rows) for part in dealt] == [
        ((0, 1, 2), 210),
        ((3, 4, 5), 300),
        ((6, 7, 8), 300),
        ((9,), 100),
    ]


@pytest.mark.parametrize("stable", [False, True])
def test_large_fragments_are_cut(tmp_path: Path, stable: bool) -> None:
    """By rows, and by default by bytes of the columns that are read; small fragments are joined."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of(1000, 0), uri, enable_stable_row_ids=stable)
    for start in (1000, 1010):
        lance.write_dataset(rows_of(10, start), uri, mode="append")
    lance.dataset(uri).delete("id >= 200 AND id < 460")
    dealt = planned(uri, rows_per_partition="250")
    assert [(part.fragments, part.rows) for part in dealt] == [((0,), 200), ((0,), 206), ((0,), 334), ((1, 2), 20)]
    for filter_, expected in ((None, 760), ("k > 10", None)):
        request = ScanRequest(filter_, ("id",))
        snapshot = Snapshot.open(Location.of(uri))
        cut = parts.plan_parts(Catalog.read(snapshot, SHARED_CACHE), request, 250)
        assert len(cut) == 4
        read = [batch for part in cut for batch in parts.read_part(snapshot.pin(), part, request)]
        ids = sorted(pa.Table.from_batches(read)["id"].to_pylist())
        assert ids == (full_scan(uri, filter_) if filter_ else sorted(lance.dataset(uri).to_table()["id"].to_pylist()))
        assert expected in (None, len(ids))


def test_wide_rows_make_smaller_partitions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(300 * 4096, dtype=np.float32)), 4096)
    lance.write_dataset(pa.table({"id": range(300), "v": vectors, "s": ["x" * 900] * 300}), uri)
    snapshot = Snapshot.open(Location.of(uri))
    assert part_size.row_bytes(snapshot, ["id"]) == 8
    assert part_size.row_bytes(snapshot, ["id", "v"]) == 8 + 4 * 4096
    assert part_size.rows_of_parts(snapshot, ["id"]) == (1 << 18, 1 << 20)
    assert part_size.rows_of_parts(snapshot, None)[0] <= (128 << 20) // (4 * 4096)
    assert part_size.rows_of_parts(snapshot, None, 7) == (7, 10)


@pytest.mark.parametrize("history", ["partial", "deferred", "stable"])
@pytest.mark.usefixtures("engine")
def test_tasks_look_up_what_is_too_much_to_send(tmp_path: Path, history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = make(tmp_path, history)
    expected = full_scan(uri, "k > 10 AND k < 20")
    request = ScanRequest("k > 10 AND k < 20", ("id",))
    snapshot = Snapshot.open(Location.of(uri))
    for limit in ("SENT_BYTES", "SEARCHED_RUNS"):
        monkeypatch.setattr(parts, limit, 3)
        dealt = parts.plan_parts(Catalog.read(snapshot, SHARED_CACHE), request, 15)
        assert any(part.lookup for part in dealt)
        assert all(part.found is None or part.piece for part in dealt)
        read = [batch for part in dealt for batch in parts.read_part(snapshot.pin(), part, request)]
        assert sorted(pa.Table.from_batches(read)["id"].to_pylist()) == expected
        monkeypatch.undo()


def test_a_frame_stays_at_its_version(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of(10, 0), uri)
    frame = load(spark, uri)
    lance.write_dataset(rows_of(10, 10), uri, mode="append")
    assert frame.count() == 10
    assert frame.filter("id >= 0").count() == 10
    assert load(spark, uri).count() == 20
    assert load(spark, uri, version=1).count() == 10


def test_columns_filter_and_metadata_columns(spark: SparkSession, tmp_path: Path) -> None:
    uri = make(tmp_path, "stable")
    stored = lance.dataset(uri).to_table(columns=["id"], filter="k = 12", with_row_id=True, with_row_address=True)
    frame = load(spark, uri, columns="k, id", filter="k = 12 -- twelve", with_row_id="true", With_Row_Address="true")
    assert frame.schema.simpleString() == "struct<k:bigint,id:bigint,_rowid:bigint,_rowaddr:bigint>"
    found = sorted((row.id, row._rowid, row._rowaddr) for row in frame.collect())
    assert found == sorted(zip(*(stored[c].to_pylist() for c in ("id", "_rowid", "_rowaddr")), strict=True))
    assert frame.filter(f"_rowid = {found[0][1]} AND k = 12").count() == 1
    only = pennon.spark.read(spark, uri, columns=["s", "_rowaddr"], batch_size=7, rows_per_partition=50)
    assert only.columns == ["s", "_rowaddr"]
    assert only.count() == lance.dataset(uri).count_rows()
    given_schema = spark.read.format("pennon").schema("s string, id bigint").load(uri)
    assert ids(given_schema.filter("s = 's3\\''")) == full_scan(uri, "s = 's3'''")


def test_batches_have_the_size_asked_for(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of(100, 0), uri)
    source = PennonSource(CaseInsensitiveDict(path=uri, batch_size="30"))
    reader = source.reader(source.schema())
    [partition] = reader.partitions()
    assert [batch.num_rows for batch in reader.read(partition)] == [30, 30, 30, 10]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"colums": "id"}, "there is no option 'colums'. Did you mean one of: columns, vector_columns?"),
        ({"columns": "id,nmae"}, "has no top-level column 'nmae'"),
        ({"columns": "id,id"}, "each once"),
        ({"filter": "idd = 3"}, "the filter names a column that the table does not have: idd"),
        ({"filter": "id = ="}, "the filter does not parse at position"),
        ({"version": "99"}, "there is no version 99 of the table"),
        ({"version": "new"}, "must be a whole number from 1, not 'new'"),
        ({"batch_size": "0"}, "must be a whole number from 1"),
        ({"with_row_id": "yes"}, "must be true or false"),
    ],
)
def test_a_wrong_option_is_told(spark: SparkSession, tmp_path: Path, options: dict[str, str], problem: str) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of(3, 0), uri)
    with pytest.raises(AnalysisException) as caught:
        load(spark, uri, **{"storage.secret_key": "topsecretvalue"}, **options)
    assert problem in str(caught.value)
    assert "topsecretvalue" not in str(caught.value)
    assert len(str(caught.value).splitlines()) < 12


def test_a_type_that_spark_cannot_hold_is_told(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1], "big": pa.array([None], pa.decimal256(60, 2))}), uri)
    with pytest.raises(AnalysisException, match=r"column 'big' has the Arrow type decimal256\(60, 2\)"):
        load(spark, uri)
    assert load(spark, uri, columns="id").count() == 1
    with pytest.raises(AnalysisException, match="column 'id' has type bigint, not string"):
        spark.read.format("pennon").schema("id string").option("columns", "id").load(uri).count()


def test_a_plan_names_no_credentials(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows_of(3, 0), uri)
    frame = load(spark, uri, **{"storage.secret_key": "topsecretvalue"})
    frame.filter("k > 1").explain(True)
    parts = planned(uri, filter="k > 1", **{"storage.secret_key": "topsecretvalue"})
    assert "topsecretvalue" not in capsys.readouterr().out + repr(parts) + repr(frame)


def test_a_table_that_is_gone_is_told(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(every_type(10), uri)
    frame = load(spark, uri, columns="id")
    shutil.rmtree(uri)
    with pytest.raises(AnalysisException, match=r"TableNotFound: there is no version 1 of the table"):
        frame.count()
