"""Rows get new values, as pylance updates them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import ColumnNotFound, CommitConflict, CoverageWarning, InvalidArgument, InvalidFilter
from pennon.jobs.rows import cover
from pennon.jobs.rows import update as job
from tests.jobs.rows.tables import check, files, rows, twins

pytestmark = pytest.mark.usefixtures("process_engine")

UPDATES: tuple[tuple[dict[str, str], str | None], ...] = (
    ({"k": "k + 1"}, "id = 52"),
    ({"k": "NULL", "s": "concat(s, '!')"}, "id < 150"),
    ({"s": "'same'"}, "k = 3"),
    ({"id": "id + 5000"}, "id % 4 = 1"),
    ({"k": "id"}, None),
    ({"k": "1"}, "id = -1"),
)


@pytest.mark.parametrize("stable", [False, True])
def test_as_pylance_updates(tmp_path: Path, stable: bool) -> None:
    table, theirs = twins(tmp_path, enable_stable_row_ids=stable)
    for values, where in UPDATES:
        planned = table.update(values, where=where, dry_run=True)
        done = table.update(values, where=where)
        updated = lance.dataset(theirs).update(values, where=where)["num_rows_updated"]
        assert (planned.rows_updated, done.rows_updated) == (updated, updated)
        assert (done.data_bytes_written > 0) == done.changed == bool(updated)
        check(table, theirs)
    lance.dataset(table.uri).validate()


def test_new_rows_are_covered_on_request(tmp_path: Path) -> None:
    table, theirs = twins(tmp_path)
    lance.dataset(theirs).update({"k": "5"}, where="id < 50")
    assert table.update({"k": "5"}, where="id < 50").segments_written == 0
    [index] = table.indices()
    assert len(index.uncovered_fragments) == 1
    lance.dataset(theirs).update({"k": "6"}, where="id < 20")
    assert table.update({"k": "6"}, where="id < 20", maintain=True).segments_written == 1
    [index] = table.indices()
    assert index.coverage == 1.0
    check(table, theirs)


def test_in_place(tmp_path: Path) -> None:
    table, theirs = twins(tmp_path)
    done = table.update({"k": "k + 1"}, where="id < 50", in_place=True)
    assert (done.rows_updated, done.fragments) == (45, (0,))
    assert table.update({"k": "k + 1"}, in_place=True, dry_run=True).rows_updated == 900
    assert [f.fragment_id for f in lance.dataset(table.uri).get_fragments()] == [*range(10)]
    lance.dataset(theirs).update({"k": "k + 1"}, where="id < 50")
    check(table, theirs)
    with pytest.raises(InvalidArgument, match="one column at a time"):
        table.update({"k": "1", "s": "'x'"}, in_place=True)


def test_a_row_that_another_writer_deletes_does_not_come_back(tmp_path: Path) -> None:
    table, _ = twins(tmp_path)
    rewrite, left = job.parts_to_rewrite, [0]

    def then(*arguments: Any) -> Any:
        found = rewrite(*arguments)
        if left:
            left.pop()
            lance.dataset(table.uri).delete("id = 21")
        return found

    before = files(table.uri, "data")
    with mock.patch.object(job, "parts_to_rewrite", then):
        assert table.update({"k": "77"}, where="id >= 20 and id < 23").rows_updated == 2
    assert lance.dataset(table.uri).count_rows("id = 21") == 0
    assert lance.dataset(table.uri).count_rows("k = 77") == 2
    assert len(files(table.uri, "data") - before) == 1, "the rows of the first attempt are deleted"


@pytest.mark.parametrize(
    ("values", "where", "error"),
    [
        ({"nope": "1"}, None, ColumnNotFound),
        ({"k": "nope + 1"}, None, InvalidFilter),
        ({"k": "'abc'"}, None, InvalidArgument),
        ({"k": "1"}, "nope = 1", InvalidFilter),
        ({"k": "1"}, "id + 1", InvalidFilter),
        ({}, None, InvalidArgument),
        ("k = 1", None, InvalidArgument),
        ({"k": 1}, None, InvalidArgument),
        ({"n.a": "1"}, None, InvalidArgument),
        ({"k": "id * 100000000"}, "id > 900", InvalidArgument),
    ],
)
def test_bad_input_changes_nothing(tmp_path: Path, values: Any, where: str | None, error: type[Exception]) -> None:
    table, theirs = twins(tmp_path)
    before = files(table.uri, "data", "_deletions", "_versions")
    with pytest.raises(error):
        table.update(values, where=where)
    assert files(table.uri, "data", "_deletions", "_versions") == before
    check(table, theirs)


def test_columns_that_hold_no_null(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.int32())])
    lance.write_dataset(pa.table({"id": [1, 2, 3], "k": [4, None, 6]}, schema=schema), uri)
    table = pennon.open(uri)
    with pytest.raises(InvalidArgument, match="cannot hold NULL"):
        table.update({"id": "k"})
    assert table.update({"id": "k"}, where="k is not null").rows_updated == 2
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == [2, 4, 6]


def test_an_empty_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows([]), uri)
    assert pennon.open(uri).update({"k": "1"}).status == "nothing to do"


def test_a_conflict_of_the_index_after_the_commit_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(100)}), uri)
    table = pennon.open(uri, engine="local")
    table.create_index("id")

    def conflict(*_: object) -> None:
        raise CommitConflict("another writer changed the index")

    monkeypatch.setattr(cover, "optimize", conflict)
    with pytest.warns(CoverageWarning, match="not covered yet: another writer changed the index"):
        done = table.update({"id": "id + 1000"}, where="id < 5", maintain=True)
    assert done.rows_updated == 5
    assert table.count("id >= 1000") == 5
