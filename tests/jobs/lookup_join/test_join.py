"""A lookup join returns what Spark's own join returns, through indices and by reading the table."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.engine.frames import frame_schema
from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter, SparkUnavailable, UnsupportedColumn
from pennon.jobs.lookup_join.plan import KEY_COST, WAYS
from pennon.testing.engines import in_process
from tests.support.cases import amounts
from tests.support.frames import frame_of as arrow_frame
from tests.support.frames import rows_of as arrow_rows

START = datetime(2026, 1, 1, tzinfo=UTC)
HOWS = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}
FLOATS = [0.0, -0.0, math.nan, -math.nan, math.inf, 0.5]
# Values of a number, in the table's type and in the type of the DataFrame.
KEYS: dict[str, tuple[pa.DataType, pa.DataType, Any]] = {
    "int": (pa.int64(), pa.int64(), lambda n: n - 10),
    "wider": (pa.int64(), pa.int32(), lambda n: n - 10),
    "narrower": (pa.int8(), pa.int64(), lambda n: n - 10),
    "unsigned": (pa.uint32(), pa.int64(), lambda n: n + 2**31),
    "string": (pa.string(), pa.string(), lambda n: f"é{n % 5}-{n}"),
    "decimal": (pa.decimal128(12, 2), pa.decimal128(10, 1), lambda n: Decimal(n - 10) / 2),
    "timestamp": (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), lambda n: START + timedelta(n)),
    "millis": (
        pa.timestamp("ms"),
        pa.timestamp("us"),
        lambda n: START.replace(tzinfo=None) + timedelta(0, 0, n * 1000),
    ),
    "uuid": (pa.uuid(), pa.binary(), lambda n: UUID(int=n << 100 | 7).bytes),
    "double": (pa.float64(), pa.float64(), lambda n: FLOATS[n] if n < 6 else n / 8),
    "float": (pa.float32(), pa.float64(), lambda n: FLOATS[n] if n < 6 else n / 8),
    "date": (pa.date32(), pa.date32(), lambda n: (START + timedelta(n)).date()),
}


@pytest.fixture(scope="module")
def spark(engine: SparkEngine) -> Any:
    return engine.session


def values(name: str, numbers: Any, *, of_frame: bool = False) -> pa.Array:
    """Every eleventh is NULL."""
    stored, given, value = KEYS[name]
    return pa.array([None if n % 11 == 10 else value(int(n)) for n in numbers], given if of_frame else stored)


def build(path: Path, name: str, seed: int, kind: str = "BTREE", *, stable: bool = False) -> str:
    """Several segments, an outstanding compaction or moved rows, deleted rows, and fragments that no index covers."""
    rng, uri = np.random.default_rng(seed), str(path)
    numbers = rng.integers(0, 40, 300)
    rows = {"id": range(300), "k": values(name, numbers), "g": pa.array(rng.integers(0, 4, 300), pa.int32())}
    lance.write_dataset(pa.table(rows), uri, max_rows_per_file=30, enable_stable_row_ids=stable)
    with in_process():
        pennon.open(uri).create_index("k", kind, fragment_ids=[0, 1, 2, 3])
        pennon.open(uri).create_index("k", kind, fragment_ids=[4, 5, 6])
        lance.dataset(uri).delete("id % 9 = 4 or id between 100 and 120")
        pennon.open(uri).compact(target_rows_per_fragment=60, remap="immediate" if stable else "deferred")
    lance.dataset(uri).delete("id % 13 = 1")
    return uri


def asked(spark: Any, name: str, seed: int, rows: int = 90) -> Any:
    rng = np.random.default_rng(seed + 1)
    keys = values(name, rng.integers(0, 48, rows), of_frame=True)
    groups = pa.array([None if n == 4 else n for n in rng.integers(0, 5, rows)], pa.int64())
    return frame_of(spark, {"number": np.arange(rows), "q": keys, "h": groups}).repartition(3)


def frame_of(spark: Any, columns: dict[str, Any]) -> Any:
    """Timestamps without a zone stay without one."""
    table = pa.table(columns)
    return arrow_frame(spark, table, frame_schema(table.schema))


def rows_of(frame: Any) -> Counter[Any]:
    """The rows with how often each occurs; NaN equals itself."""
    table = arrow_rows(frame)
    columns = [column.to_pylist() for column in table.columns]
    return Counter(tuple("NaN" if value != value else value for value in row) for row in zip(*columns, strict=True))


def own_join(spark: Any, frame: Any, uri: str, on: dict[str, str], how: str, where: str = "true") -> Counter[Any]:
    """Spark's own join with a copy of the table's rows; floats of the DataFrame's type."""
    rows = lance.dataset(uri).to_table(filter=None if where == "true" else where)
    columns = {}
    for field in rows.schema:
        column = rows[field.name].combine_chunks()
        column = column.storage if isinstance(field.type, pa.UuidType) else column
        column = column.cast(pa.int64()) if pa.types.is_unsigned_integer(column.type) else column
        column = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
        column = column.cast(pa.timestamp("us", column.type.tz)) if pa.types.is_timestamp(column.type) else column
        columns[f"t_{field.name}"] = column
    table = frame_of(spark, columns)
    condition = [frame[own] == table[f"t_{theirs}"] for own, theirs in on.items()]
    joined = frame.join(table, condition, HOWS[how])
    return rows_of(joined.drop(*(f"t_{theirs}" for theirs in on.values())))


# Types and ways do not depend on each other: every type left and in one more way, one type in all of them.
SOME_WAYS = {name: ("left", ("inner", "semi", "anti")[place % 3]) for place, name in enumerate(KEYS)} | {"int": WAYS}
TYPES_AND_WAYS = [
    *(pytest.param(name, ways, id=name) for name, ways in SOME_WAYS.items()),
    *(
        pytest.param(name, tuple(way for way in WAYS if way not in ways), id=f"{name}, others", marks=pytest.mark.heavy)
        for name, ways in SOME_WAYS.items()
        if name != "int"
    ),
]


@pytest.mark.parametrize(("name", "ways"), TYPES_AND_WAYS)
def test_a_join_equals_sparks_own(spark: Any, tmp_path: Path, name: str, ways: tuple[str, ...]) -> None:
    uri = build(tmp_path / "t.lance", name, len(name))
    table, frame = pennon.open(uri), asked(spark, name, 5)
    assert table.fragment_reuse() is not None
    for how in ways:
        expected = own_join(spark, frame, uri, {"q": "k"}, how)
        assert expected
        plan = table.plan_lookup_join(frame, {"q": "k"}, how, prefix="t_")
        assert plan.uses_index
        assert plan.scanned_rows > 0
        assert rows_of(table.lookup_join(frame, {"q": "k"}, how, prefix="t_")) == expected, how
        if name != "int" and how != "left":
            continue
        large = table.plan_lookup_join(frame, {"q": "k"}, how, prefix="t_", keys=10**6)
        assert not large.uses_index
        assert rows_of(table.lookup_join(frame, {"q": "k"}, how, prefix="t_", keys=10**6)) == expected, how


@pytest.mark.parametrize(("kind", "stable"), [("BTREE", True), ("BITMAP", False), ("BITMAP", True)])
def test_other_indices_and_stable_row_ids(spark: Any, tmp_path: Path, kind: str, stable: bool) -> None:
    uri = build(tmp_path / "t.lance", "string", 3, kind, stable=stable)
    table, frame = pennon.open(uri), asked(spark, "string", 8)
    assert table.plan_lookup_join(frame, {"q": "k"}).uses_index
    for how in WAYS:
        found = table.lookup_join(frame, {"q": "k"}, how, prefix="t_", filter="g > 0")
        assert rows_of(found) == own_join(spark, frame, uri, {"q": "k"}, how, "g > 0"), how


@pytest.mark.parametrize("kind", ["BLOOMFILTER", "ZONEMAP"])
def test_indices_that_narrow_values_down(spark: Any, tmp_path: Path, kind: str) -> None:
    uri = build(tmp_path / "t.lance", "int", 4, kind)
    table, frame = pennon.open(uri), asked(spark, "int", 9, rows=6)
    assert "only narrow values down" in table.plan_lookup_join(frame, {"q": "k"}).reason
    assert table.plan_lookup_join(frame, {"q": "k"}, keys=6).uses_index == (table.count() >= 6 * KEY_COST)
    for keys in (None, 6):
        found = table.lookup_join(frame, {"q": "k"}, "left", prefix="t_", keys=keys)
        assert rows_of(found) == own_join(spark, frame, uri, {"q": "k"}, "left")


@pytest.mark.parametrize("second", [None, "BITMAP"])
def test_two_key_columns(spark: Any, tmp_path: Path, second: str | None) -> None:
    uri = build(tmp_path / "t.lance", "int", 6)
    if second is not None:
        with in_process():
            pennon.open(uri).create_index("g", second)
    table, frame, on = pennon.open(uri), asked(spark, "int", 7, rows=300), {"q": "k", "h": "g"}
    for how in WAYS:
        assert rows_of(table.lookup_join(frame, on, how, prefix="t_")) == own_join(spark, frame, uri, on, how), how


@pytest.mark.parametrize("ways", amounts(2, len(WAYS)))
def test_random_tables_and_frames(spark: Any, tmp_path: Path, tally: Any, ways: int) -> None:
    """A hot key on both sides, keys in one order or another, empty frames, memory for a few rows at once. With two of
    the ways for a table, each is tried on two tables at least."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        uri = build(tmp_path / f"{seed}.lance", "int", seed)
        hot = pa.table({"id": range(1000, 1200), "k": [3] * 200, "g": pa.array([1] * 200, pa.int32())})
        lance.write_dataset(hot, uri, mode="append")
        if seed % 2:
            with in_process():
                pennon.open(uri).optimize_indices(num_indices_to_merge=0)
        numbers = np.where(rng.random(400) < 0.3, 13, rng.integers(0, 60, 400)) if seed else np.arange(0)
        keys = pa.table({"number": np.arange(len(numbers)), "q": values("int", numbers, of_frame=True)})
        frame = arrow_frame(spark, keys, "number long, q long").repartition(1 + seed)
        table = pennon.open(uri)
        for how in (WAYS * 2)[seed % 4 : seed % 4 + ways]:
            found = table.lookup_join(frame, {"q": "k"}, how, prefix="t_", task_memory_bytes=64 << 20)
            assert rows_of(found) == own_join(spark, frame, uri, {"q": "k"}, how), (seed, how)
            tally("lookup joins", 1)


def test_columns_and_names(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rows = {"user_id": [1, 2, 3], "s": [{"a": 1}, {"a": 2}, None], "ns": pa.array([1, 2001, 3], pa.timestamp("ns"))}
    lance.write_dataset(pa.table(rows), uri)
    pennon.open(uri, engine="local").create_index("user_id")
    table, frame = pennon.open(uri), spark.createDataFrame([(2, "x"), (9, "y")], "user_id int, note string")
    everything = table.lookup_join(frame, "user_id")
    assert everything.columns == ["user_id", "note", "s", "ns"]
    assert [row.s.a for row in everything.collect()] == [2]
    assert everything.collect()[0].ns == datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=UTC).replace(tzinfo=None)
    named = table.lookup_join(frame, ["user_id"], columns=["s.a", "_rowaddr", "user_id"], prefix="T_")
    assert named.columns == ["user_id", "note", "T_s.a", "T__rowaddr", "T_user_id"]
    assert [tuple(row) for row in named.collect()] == [(2, "x", 2, 1, 2)]
    nested = table.lookup_join(frame, {"user_id": "s.a"}, columns=["user_id"], prefix="t_")
    assert [tuple(row) for row in nested.collect()] == [(2, "x", 2)]
    none = table.lookup_join(frame, "user_id", columns=[])
    assert [tuple(row) for row in none.collect()] == [(2, "x")]
    assert table.lookup_join(frame, "user_id", "left").where("s is null").count() == 1


def test_nanoseconds_that_spark_lacks_equal_no_key(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(3), "at": pa.array([1000, 1001, 2000], pa.timestamp("ns"))}), uri)
    table = pennon.open(uri)
    frame = frame_of(spark, {"q": pa.array([1, 2, 3], pa.timestamp("us"))})
    for expected in (False, True):
        joined = table.lookup_join(frame, {"q": "at"})
        assert table.plan_lookup_join(frame, {"q": "at"}).uses_index == expected
        assert sorted(row.id for row in joined.collect()) == [0, 2]
        pennon.open(uri, engine="local").create_index("at")
        table = pennon.open(uri)


def test_the_frame_is_computed_once(spark: Any, tmp_path: Path) -> None:
    uri = build(tmp_path / "t.lance", "int", 2)
    counted = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            counted.add(batch.num_rows)
            yield batch

    frame = asked(spark, "int", 3)
    watched = frame.mapInArrow(count, frame.schema)
    assert rows_of(pennon.open(uri).lookup_join(watched, {"q": "k"}, "left", prefix="t_"))
    assert counted.value == 90


def test_an_empty_table_and_a_table_without_an_index(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())}), uri)
    frame = spark.createDataFrame([(1,), (None,)], "k long")
    table = pennon.open(uri)
    assert [tuple(row) for row in table.lookup_join(frame, "k", "left").collect()] == [(1, None), (None, None)]
    assert table.lookup_join(frame, "k", "anti").count() == 2
    assert table.lookup_join(frame, "k").count() == 0
    lance.write_dataset(pa.table({"k": [1, 1, 2], "v": ["a", "b", "c"]}), uri, mode="append")
    table.refresh()
    assert "no index finds values of k" in str(table.plan_lookup_join(frame, "k"))
    assert sorted(row.v for row in table.lookup_join(frame, "k").collect()) == ["a", "b"]


def test_plans(spark: Any, tmp_path: Path) -> None:
    uri = build(tmp_path / "t.lance", "int", 1)
    table, frame = pennon.open(uri), asked(spark, "int", 1)
    plan = table.plan_lookup_join(frame, {"q": "k"}, "left", columns=["g"], filter="g > 1", task_memory_bytes=1 << 28)
    covered, rest = plan.covered_rows, plan.scanned_rows
    assert covered + rest == table.count()
    assert str(plan).splitlines()[1:] == [
        "  keys     q = k, left",
        "  filter   g > 1, checked on the rows found",
        f"  index    k_idx on k: {covered} rows in {len(plan.covered)} fragments",
        f"  read     the keys of {rest} rows that no index covers, once",
        f"  tasks    {plan.tasks} tasks by ranges of k, 1 to read keys",
        f"  memory   256.0 MiB a task, {plan.block_rows:,} rows at once",
    ]
    assert plan.to_dict() | {"lookup_tasks": 0, "table": "", "version": 0} == {
        "table": "",
        "version": 0,
        "on": [{"dataframe": "q", "table": "k"}],
        "how": "left",
        "columns": ["g"],
        "filter": "g > 1",
        "keys": None,
        "strategy": "index",
        "reason": None,
        "indices": ["k_idx"],
        "covered_rows": covered,
        "scanned_rows": rest,
        "scan_tasks": 1,
        "lookup_tasks": 0,
        "rows_at_once": plan.block_rows,
        "task_memory_bytes": 1 << 28,
    }
    assert "lookup tasks" in plan._repr_html_()  # pyright: ignore[reportPrivateUsage]
    large = table.plan_lookup_join(frame, {"q": "k"}, keys=100_000)
    assert str(large).splitlines()[2].endswith(f"100,000 keys are a large share of {table.count()} rows")
    assert large.to_dict()["strategy"] == "scan"
    with in_process():
        pennon.open(uri).create_index(
            "g", fragment_ids=[max(lance.dataset(uri).get_fragments(), key=lambda f: f.fragment_id).fragment_id]
        )
    little = pennon.open(uri).plan_lookup_join(frame, {"h": "g"})
    assert "the indices on g cover" in little.reason


@pytest.mark.parametrize(
    ("on", "options", "error", "problem"),
    [
        ("nothing", {}, ColumnNotFound, "no column 'nothing'"),
        ({"nothing": "k"}, {}, ColumnNotFound, "the DataFrame has no column 'nothing'"),
        ({"q": "nothing"}, {}, ColumnNotFound, "no column 'nothing'"),
        ({"word": "k"}, {}, InvalidArgument, "'word' of the DataFrame has type string, and column 'k' .* int64"),
        ({"real": "k"}, {}, InvalidArgument, "has type double"),
        ({"list": "k"}, {}, InvalidArgument, "has type array<bigint>"),
        ({"q": "l"}, {}, UnsupportedColumn, "'l' has type list"),
        ({}, {}, InvalidArgument, "on takes columns, not {}"),
        ([], {}, InvalidArgument, "on takes columns"),
        (7, {}, InvalidArgument, "on takes columns, not 7"),
        ({"q": "k", "other": "k"}, {}, InvalidArgument, "on names column 'k' twice"),
        ({"q": "k"}, {"how": "outer"}, InvalidArgument, "unknown how='outer'. Use one of: inner, left, semi, anti"),
        ({"q": "k"}, {"how": "semi", "columns": ["id"]}, InvalidArgument, "returns no columns of the table"),
        ({"q": "k"}, {"columns": ["nothing"]}, ColumnNotFound, "no column 'nothing'"),
        ({"q": "k"}, {"columns": "id"}, InvalidArgument, "columns takes a list"),
        ({"q": "k"}, {"columns": ["WORD"]}, ColumnNotFound, "no column 'WORD'"),
        ({"q": "k"}, {"columns": ["Word"]}, InvalidArgument, "two columns"),
        ({"q": "k"}, {"columns": ["id"], "filter": "id >"}, InvalidFilter, "filter"),
        ({"q": "k"}, {"keys": -1}, InvalidArgument, "keys must be"),
        ({"q": "k"}, {"prefix": 3}, InvalidArgument, "prefix must be text"),
        ({"q": "k"}, {"task_memory_bytes": 5}, InvalidArgument, "too little"),
    ],
    ids=str,
)
def test_errors_come_before_spark_works(
    spark: Any, tmp_path: Path, on: Any, options: dict[str, Any], error: Any, problem: str
) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1], "k": [1], "l": [[1]], "Word": ["x"]}), uri)
    row = (1, 2, "x", 0.5, [1])
    frame = spark.createDataFrame([row], "q long, other long, word string, real double, list array<long>")
    table = pennon.open(uri)
    for verb in (table.lookup_join, table.plan_lookup_join):
        with pytest.raises(error, match=problem):
            verb(frame, on, **options)


def test_what_is_no_frame_or_cannot_be_passed(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"k": [1]}), uri)
    with pytest.raises(SparkUnavailable, match="lookup_join works on Spark DataFrames"):
        pennon.open(uri, engine="local").lookup_join(None, "k")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="takes a Spark DataFrame, not pyarrow"):
        pennon.open(uri).lookup_join(pa.table({"k": [1]}), "k")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="with a dot or a backtick"):
        pennon.open(uri).lookup_join(spark.createDataFrame([(1, 2)], ["k", "a.b"]), "k")
    with pytest.raises(InvalidArgument, match="two columns"):
        pennon.open(uri).lookup_join(spark.sql("select 1L as k, 2 as a, 3 as A"), "k")


def test_spark_does_not_take_a_table_that_is_read_for_a_small_one(engine: SparkEngine, tmp_path: Path) -> None:
    """Spark would send it whole to every executor; the size of a frame follows from that of its source."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"k": range(5000), "v": range(5000)}), uri, max_rows_per_file=1000)
    spark = engine.session
    table, keys = pennon.open(uri), spark.range(0, 20_000, 2).withColumnRenamed("id", "k")
    limit = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "20000")
    try:
        joined = table.lookup_join(keys, "k", columns=["v"])
        read = keys.join(table.dataframe(columns=["k", "v"]), "k")
        assert [joined.count(), read.count()] == [2500, 2500]
        for frame in (joined, read):
            plan = frame._jdf.queryExecution().executedPlan().toString()  # pyright: ignore[reportOptionalMemberAccess]
            assert "BroadcastHashJoin" not in plan
            assert "SortMergeJoin" in plan
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", limit or "10MB")
