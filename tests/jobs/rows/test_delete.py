"""Rows that a filter selects are deleted, as pylance deletes them."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.errors import CommitConflict, InvalidArgument, InvalidFilter
from pennon.format import deletion_files
from pennon.jobs.rows import delete as job
from pennon.table import Table
from tests.jobs.rows.tables import check, content, files, rows, twins

pytestmark = pytest.mark.usefixtures("process_engine")

FILTERS = ("id = 52", "id < 150", "k = 3", "s IS NULL", "id % 4 = 1", "n.b = 'b1' AND id > 500", "id = -1", "true")


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("bitmaps", [False, True])
def test_as_pylance_deletes(tmp_path: Path, stable: bool, bitmaps: bool) -> None:
    table, theirs = twins(tmp_path, enable_stable_row_ids=stable)
    with mock.patch.object(deletion_files, "ARRAY_ROWS", 0 if bitmaps else 5000):
        for filter in FILTERS:
            planned = table.delete(filter, dry_run=True)
            expected = lance.dataset(theirs).count_rows(filter)
            assert planned.rows_deleted == expected, filter
            done = table.delete(filter)
            lance.dataset(theirs).delete(filter)
            assert (done.rows_deleted, done.fragments) == (expected, planned.fragments)
            assert done.changed == bool(expected)
            assert lance.dataset(table.uri).count_rows() == lance.dataset(theirs).count_rows()
            assert content(table.uri) == content(theirs)
            lance.dataset(table.uri).validate()
    assert lance.dataset(table.uri).get_fragments() == []


def test_fragments_without_rows_are_removed(tmp_path: Path) -> None:
    table, theirs = twins(tmp_path)
    table.delete("id >= 100 and id < 300")
    lance.dataset(theirs).delete("id >= 100 and id < 300")
    assert [f.fragment_id for f in lance.dataset(table.uri).get_fragments()] == [0, *range(3, 10)]
    check(table, theirs)
    # pylance goes on from there
    for uri in (table.uri, theirs):
        lance.dataset(uri).delete("id % 3 = 0")
        lance.dataset(uri).optimize.compact_files()
    check(table, theirs)


def test_many_fragments_are_marked_by_tasks(tmp_path: Path) -> None:
    table, theirs = twins(tmp_path, rows_per_fragment=20)
    assert len(table.delete("id % 7 = 1").fragments) == 50
    lance.dataset(theirs).delete("id % 7 = 1")
    check(table, theirs)


def test_an_expression_of_pyarrow_is_a_filter(tmp_path: Path) -> None:
    table, theirs = twins(tmp_path)
    assert table.delete(pc.field("id") < 30).rows_deleted == 27
    lance.dataset(theirs).delete("id < 30")
    check(table, theirs)


def meanwhile(table: Table, *changes: object) -> mock._patch[object]:  # pyright: ignore[reportPrivateUsage]
    """Other writers commit after the rows were found, one change each time."""
    left = list(changes)
    find = job.find_rows

    def found(*arguments: object) -> object:
        result = find(*arguments)  # pyright: ignore[reportArgumentType]
        if left:
            left.pop(0)()  # pyright: ignore[reportCallIssue]
        return result

    return mock.patch.object(job, "find_rows", found)


def test_other_writers_of_the_same_fragments(tmp_path: Path) -> None:
    table, _ = twins(tmp_path)
    dataset = lance.dataset
    with meanwhile(table, lambda: dataset(table.uri).delete("id = 7")):
        assert table.delete("id = 8").rows_deleted == 1
    assert dataset(table.uri).count_rows("id in (7, 8)") == 0
    with meanwhile(table, lambda: lance.write_dataset(rows([2000, 2001]), table.uri, mode="append")):
        assert table.delete("id < 20 or id = 2000").rows_deleted == 16
    assert dataset(table.uri).count_rows("id >= 2000") == 2, "the append came after the delete"
    # A row that another writer changed is looked at again.
    with meanwhile(table, lambda: dataset(table.uri).update({"k": "100"}, where="id = 31")):
        assert table.delete("id = 31 and k < 100").rows_deleted == 0
    assert dataset(table.uri).count_rows("id = 31") == 1
    with meanwhile(table, lambda: dataset(table.uri).optimize.compact_files(target_rows_per_fragment=5000)):
        assert table.delete("id = 41").rows_deleted == 1
    assert dataset(table.uri).count_rows("id = 41") == 0


def test_writers_that_never_stop(tmp_path: Path) -> None:
    table, _ = twins(tmp_path)
    update = lambda: lance.dataset(table.uri).update({"k": "k + 1"}, where="id = 31")  # noqa: E731
    before = files(table.uri, "_deletions")
    with meanwhile(table, *[update] * 50), pytest.raises(CommitConflict, match="changed by another writer"):
        table.delete("id < 40")
    assert lance.dataset(table.uri).count_rows("id < 40") == 36
    left = files(table.uri, "_deletions") - before
    assert all("-" in name for name in left)
    lance.dataset(table.uri).validate()


@pytest.mark.parametrize("filter", ["nope = 1", "id +", "id + 1", 42, None])
def test_what_is_no_filter(tmp_path: Path, filter: object) -> None:
    table, theirs = twins(tmp_path)
    for dry_run in (True, False):
        with pytest.raises((InvalidFilter, InvalidArgument, pennon.errors.ColumnNotFound)):
            table.delete(filter, dry_run=dry_run)  # pyright: ignore[reportArgumentType]
    check(table, theirs)


def test_a_table_without_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), uri)
    assert pennon.open(uri).delete("id = 1").status == "nothing to do"
