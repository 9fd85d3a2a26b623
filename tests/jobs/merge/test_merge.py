"""Merges are those of pylance's `merge_insert` and of SQL's MERGE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon import Delete, Insert, Update
from pennon.jobs.merge import apply, match, merge
from pennon.jobs.merge import source as merge_source
from pennon.table import Table
from tests.jobs.merge.oracle import merged
from tests.jobs.rows.tables import check, content, files, rows, twins

pytestmark = pytest.mark.usefixtures("process_engine")

KNOWN = [*range(20, 60), *range(300, 310), *range(990, 1010), -5]


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def stable(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[0.0, 1.0], ids=["read", "looked up"])
def share(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Whether keys are matched by reading those of the table, with the source in memory, or through the index, with the
    source in a file."""
    monkeypatch.setattr(match, "LARGE_SHARE", request.param)
    if request.param:
        monkeypatch.setattr(merge_source, "FEW_BYTES", 0)
    return request.param


@pytest.mark.usefixtures("share")
def test_upserts_as_pylance(tmp_path: Path, stable: bool) -> None:
    table, theirs = twins(tmp_path, enable_stable_row_ids=stable)
    for number in range(3):
        source = rows([key + number * 7 for key in KNOWN], f"new {number}")
        planned = table.merge(source, on="id", dry_run=True)
        done = table.merge(source, on="id")
        builder = lance.dataset(theirs).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        expected: dict[str, int] = dict(builder.execute(source))  # pyright: ignore[reportAssignmentType]
        counts = (done.rows_inserted, done.rows_updated, done.rows_deleted)
        assert counts == (planned.rows_inserted, planned.rows_updated, planned.rows_deleted)
        assert counts == tuple(expected[f"num_{what}_rows"] for what in ("inserted", "updated", "deleted"))
        check(table, theirs)
    lance.dataset(table.uri).validate()


@pytest.mark.usefixtures("share")
@pytest.mark.parametrize(
    ("ours", "theirs_do"),
    [
        ({"when_matched": None}, lambda b: b.when_not_matched_insert_all()),
        ({"when_not_matched": None}, lambda b: b.when_matched_update_all()),
        ({"when_matched": "delete", "when_not_matched": None}, lambda b: b.when_matched_delete()),
        (
            {"when_matched": Update(condition="source.k > target.k")},
            lambda b: b.when_matched_update_all("source.k > target.k").when_not_matched_insert_all(),
        ),
        (
            {"when_not_matched_by_source": Delete("target.id < 100")},
            lambda b: (
                b.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete("id < 100")
            ),
        ),
        (
            {"when_not_matched_by_source": "delete"},
            lambda b: b.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete(),
        ),
    ],
)
def test_other_merges_as_pylance(tmp_path: Path, stable: bool, ours: dict[str, Any], theirs_do: Any) -> None:
    table, theirs = twins(tmp_path, enable_stable_row_ids=stable)
    source = rows(KNOWN, "new")
    source = source.set_column(1, "k", pa.array([number % 5 for number in range(len(KNOWN))], pa.int32()))
    done = table.merge(source, on="id", **ours)
    expected = theirs_do(lance.dataset(theirs).merge_insert("id")).execute(source)
    assert (done.rows_inserted, done.rows_deleted) == (expected["num_inserted_rows"], expected["num_deleted_rows"])
    assert done.rows_updated == expected["num_updated_rows"]
    check(table, theirs)


def table_of(uri: str) -> list[dict[str, Any]]:
    return sorted(lance.dataset(uri).to_table().to_pylist(), key=str)


def compare(table: Table, source: pa.Table, on: Sequence[str], arguments: dict[str, Any], **rules: Any) -> None:
    before = lance.dataset(table.uri).to_table().to_pylist()
    expected, counts = merged(before, source.to_pylist(), on, **rules)
    done = table.merge(source, list(on), **arguments)
    assert {name: getattr(done, f"rows_{name}") for name in counts} == counts
    assert table_of(table.uri) == sorted(expected, key=str)
    lance.dataset(table.uri).validate()


@pytest.mark.usefixtures("share")
def test_clauses_in_order(tmp_path: Path, stable: bool) -> None:
    table, _ = twins(tmp_path, enable_stable_row_ids=stable)
    source = pa.table(
        {
            "id": pa.array(KNOWN, pa.int64()),
            "k": pa.array([i % 4 for i in KNOWN], pa.int32()),
            "gone": [i % 3 == 0 for i in KNOWN],
        }
    )
    arguments = {
        "when_matched": [Delete("source.gone"), Update(["k"], "source.k > 1"), Update({"k": "source.k + target.k"})],
        "when_not_matched": Insert("NOT source.gone"),
        "when_not_matched_by_source": [Delete("target.k = 3 and target.id > 500"), Delete("target.id = 8")],
    }

    def plus(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else a + b

    compare(
        table,
        source,
        ["id"],
        arguments,
        matched=[
            ("delete", lambda s, t: s["gone"], None),
            ("update", lambda s, t: s["k"] > 1, lambda s, t: {**t, "k": s["k"]}),
            ("update", lambda s, t: True, lambda s, t: {**t, "k": plus(s["k"], t["k"])}),
        ],
        inserts=lambda s, t: not s["gone"],
        deletes=lambda t, s: (t["k"] == 3 and t["id"] > 500) or t["id"] == 8,
    )


KEYS = {
    "text": [None, "", "a", "b", "a b", "é", "z" * 40, "日本"],
    "floats": [None, 0.0, -0.0, 1.5, float("inf"), -1e300],
    "days": [None, *(date(2026, 1, n) for n in range(1, 6))],
    "binary": [None, b"", b"\x00", b"ab"],
}


@pytest.mark.usefixtures("share")
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("indexed", [False, True])
def test_keys_of_every_type_repeated_and_null(tmp_path: Path, kind: str, indexed: bool) -> None:
    """The table has keys twice and NULLs; the source one of each, and NULLs."""
    uri = str(tmp_path / "t.lance")
    values = pa.array(KEYS[kind])
    some = np.random.default_rng(7).integers(0, len(values), 60)
    column = values.take(pa.array(some))
    lance.write_dataset(pa.table({"key": column, "n": range(60), "v": [0] * 60}), uri, max_rows_per_file=20)
    table = pennon.open(uri)
    if indexed:
        table.create_index("key")
    lance.write_dataset(pa.table({"key": column.slice(0, 9), "n": range(60, 69), "v": [0] * 9}), uri, mode="append")
    chosen = [0, 0, 1, 3, 2]
    source = pa.table({"key": values.take(pa.array(chosen)), "n": range(100, 105), "v": [1] * 5})
    theirs = str(tmp_path / "o.lance")
    lance.write_dataset(lance.dataset(uri).to_table(), theirs)
    done = table.merge(source, on="key")
    expected = (
        lance.dataset(theirs)
        .merge_insert("key")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(source)
    )
    assert (done.rows_inserted, done.rows_updated) == (expected["num_inserted_rows"], expected["num_updated_rows"])
    assert table_of(uri) == table_of(theirs)


@pytest.mark.usefixtures("share")
def test_keys_of_several_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rng = np.random.default_rng(3)

    def some(count: int, mark: int) -> pa.Table:
        a, b = rng.integers(0, 6, count), rng.integers(0, 40, count)
        return pa.table({"a": a, "b": [None if n % 9 == 0 else f"b{n}" for n in b], "v": [mark] * count})

    lance.write_dataset(some(200, 0), uri, max_rows_per_file=50)
    table = pennon.open(uri)
    table.create_index("a", "BITMAP")
    table.create_index("b")
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in some(120, 1).to_pylist():
        seen.setdefault((row["a"], row["b"]), row)
    source = pa.Table.from_pylist(list(seen.values()))
    compare(
        table,
        source,
        ["a", "b"],
        {},
        matched=[("update", lambda s, t: True, lambda s, t: s)],
        inserts=lambda s, t: True,
    )


def test_many_ranges_and_small_blocks(tmp_path: Path, stable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "RANGE_BYTES", 2000)
    monkeypatch.setattr("pennon.jobs.merge.apply.BLOCK_ROWS", 7)
    monkeypatch.setattr("pennon.jobs.merge.duplicates.FEW_KEYS", 0)
    monkeypatch.setattr("pennon.jobs.merge.match.HELD_KEYS", 0)
    monkeypatch.setattr("pennon.jobs.merge.source.ROWS_PER_SLICE", 11)
    monkeypatch.setattr("pennon.format.new_rows.ROWS_PER_FILE", 5)
    table, theirs = twins(tmp_path, enable_stable_row_ids=stable)
    source = rows(KNOWN, "new")
    done = table.merge(source, on="id")
    lance.dataset(theirs).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    ours, expected = content(table.uri), content(theirs)
    if stable:  # new ids depend on the order in which rows were written
        old = [row for row in ours.to_pylist() if row["_row_created_at_version"] < done.version_after]
        assert old == [row for row in expected.to_pylist() if row["_row_created_at_version"] < done.version_after]
        assert len(set(ours["_rowid"].to_pylist())) == len(ours)
        ours, expected = ours.drop_columns(["_rowid"]), expected.drop_columns(["_rowid"])
    assert ours == expected


def test_new_rows_are_covered_on_request(tmp_path: Path) -> None:
    table, theirs = twins(tmp_path)
    assert table.merge(rows(KNOWN), on="id").segments_written == 0
    done = table.merge(rows([5000]), on="id", maintain=True)
    assert done.segments_written == 1
    [index] = table.indices()
    assert index.coverage == 1.0
    assert table.audit(recall_queries=0).ok
    del theirs


def test_a_source_larger_than_the_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(range(5)), uri)
    done = pennon.open(uri).merge(rows(range(2, 400), "new"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (3, 395)
    assert lance.dataset(uri).count_rows() == 400


def test_tables_and_sources_without_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows([]), uri)
    table = pennon.open(uri)
    assert table.merge(rows([]), on="id").status == "nothing to do"
    assert table.merge(rows([1, 2]), on="id").rows_inserted == 2
    done = table.merge(rows([]), on="id", when_not_matched_by_source="delete")
    assert done.rows_deleted == 2
    assert lance.dataset(uri).count_rows() == 0


def test_what_is_staged_is_removed(tmp_path: Path) -> None:
    table, _ = twins(tmp_path)
    before = files(table.uri, "_indices")
    table.merge(rows(KNOWN), on="id", dry_run=True)
    table.merge(rows(KNOWN), on="id")
    with pytest.raises(pennon.errors.InvalidArgument):
        table.merge(rows([1, 1]), on="id")
    with (
        mock.patch.object(merge, "merge_range", side_effect=RuntimeError("broken")),
        pytest.raises(Exception, match="broken"),
    ):
        table.merge(rows(KNOWN), on="id")
    assert files(table.uri, "_indices") == before


def test_addresses_that_do_not_end_in_lance(tmp_path: Path) -> None:
    for stable in (False, True):
        uri = str(tmp_path / f"plain {stable}")
        lance.write_dataset(rows(range(100)), uri, max_rows_per_file=10, enable_stable_row_ids=stable)
        table = pennon.open(uri)
        assert table.merge(rows(range(10, 30), "x"), on="id").rows_updated == 20
        assert len(lance.dataset(uri).get_fragments()) == 9
        if stable:
            with pytest.raises(pennon.errors.UnsupportedTable, match=r"\.lance"):
                table.merge(rows([500]), on="id")
            assert lance.dataset(uri).count_rows() == 100
        else:
            done = table.merge(rows([*range(40, 50), 500], "x"), on="id")
            assert (done.rows_updated, done.rows_inserted) == (10, 1)
            assert lance.dataset(uri).count_rows() == 101
        lance.dataset(uri).validate()


def test_a_page_is_read_for_one_block_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the source is ordered: many blocks read hardly more than one."""
    rng = np.random.default_rng(4)
    count, some = 200_000, 4_000
    keys = rng.permutation(count)
    source = pa.table({"id": rng.choice(count, some, replace=False), "n": np.arange(some)})
    monkeypatch.setattr(match, "LARGE_SHARE", 1.0)
    read: list[int] = []
    for name, rows_at_once in (("one", some), ("many", 200)):
        monkeypatch.setattr(apply, "BLOCK_ROWS", rows_at_once)
        uri = str(tmp_path / f"{name}.lance")
        lance.write_dataset(pa.table({"id": keys, "n": np.zeros(count, dtype=np.int64)}), uri)
        pennon.open(uri).create_index("id", batch_size=256)
        done = pennon.open(uri).merge(source, on="id")
        assert done.rows_updated == some
        read.append(done.work.bytes_read)
        found = lance.dataset(uri).to_table(filter="n > 0").sort_by("id")
        assert found == source.filter(pa.array(source["n"].to_numpy() > 0)).sort_by("id")
    assert read[1] < 2 * read[0]
