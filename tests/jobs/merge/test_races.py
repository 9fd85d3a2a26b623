"""Merges that run at the same time as other writers: keys stay unique, and nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pytest

import pennon
from pennon.errors import CommitConflict
from pennon.format import exact_commit, row_changes
from pennon.jobs.merge import merge
from tests.jobs.rows.tables import files, rows, twins

pytestmark = pytest.mark.usefixtures("process_engine")


@contextmanager
def before_commit(*changes: Callable[[], Any]) -> Generator[list[int]]:
    """Other writers commit after the keys were checked and before the merge commits, one change each time. Yields how
    often a commit was tried."""
    left, tried = list(changes), [0]
    commit = merge.commit_inserted_rows

    def later(*arguments: Any) -> Any:
        tried[0] += 1
        if left:
            left.pop(0)()
        return commit(*arguments)

    with mock.patch.object(merge, "commit_inserted_rows", later):
        yield tried


def ids(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table(["id"])["id"].to_pylist())


@pytest.fixture(params=["t.lance", "t"], ids=["exact", "merge operation"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table whose commits are exact, and one where Lance has to find conflicts."""
    uri = str(tmp_path / request.param)
    lance.write_dataset(rows(range(100)), uri, max_rows_per_file=20)
    pennon.open(uri).create_index("id")
    return uri


def test_an_append_of_the_same_key(uri: str) -> None:
    append = lambda: lance.write_dataset(rows([500], "theirs"), uri, mode="append")  # noqa: E731
    with before_commit(append) as tried:
        done = pennon.open(uri).merge(rows([5, 500], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (2, 0), "the appended row is updated, not inserted again"
    assert ids(uri) == [*range(100), 500]
    assert lance.dataset(uri).count_rows("s = 'text 500ours'") == 1
    assert tried[0] == 1, "the second time it inserts nothing, and needs no exact commit"


def test_an_append_of_other_keys(uri: str) -> None:
    append = lambda: lance.write_dataset(rows([600, 601]), uri, mode="append")  # noqa: E731
    before = files(uri, "data")
    with (
        before_commit(append, append) as tried,
        mock.patch.object(merge, "merge_range", wraps=merge.merge_range) as range_,
    ):
        done = pennon.open(uri).merge(rows([5, 500], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted, tried[0]) == (1, 1, 3)
    assert ids(uri) == [*range(100), 500, 600, 600, 601, 601]
    assert len(files(uri, "data") - before) == 3, "the rows were written once"
    del range_


def test_rows_that_others_change(uri: str) -> None:
    dataset = lance.dataset
    with before_commit(lambda: dataset(uri).update({"k": "99"}, where="id = 5")):
        done = pennon.open(uri).merge(rows([5, 500], "ours"), on="id", when_matched=pennon.Update(["s"]))
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert dataset(uri).to_table(["k", "s"], filter="id = 5").to_pylist() == [{"k": 99, "s": "text 5ours"}]
    with before_commit(lambda: dataset(uri).delete("id in (6, 7)")):
        done = pennon.open(uri).merge(rows([6, 501], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (0, 2), "the deleted row is inserted"
    assert ids(uri) == [*(n for n in range(100) if n != 7), 500, 501]
    with before_commit(lambda: dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)):
        done = pennon.open(uri).merge(rows([8, 502], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert ids(uri) == [*(n for n in range(100) if n != 7), 500, 501, 502]
    with before_commit(lambda: pennon.open(uri).update({"id": "id + 400"}, where="id = 12", in_place=True)):
        done = pennon.open(uri).merge(rows([412, 503], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1), "a key that came by an update in place"
    with before_commit(lambda: dataset(uri).create_scalar_index("k", "BTREE", replace=True)):
        assert pennon.open(uri).merge(rows([504], "ours"), on="id").rows_inserted == 1
    assert max(Counter(ids(uri)).values()) == 1
    dataset(uri).validate()


def test_a_version_that_others_restore(uri: str) -> None:
    """A row that was deleted when keys were matched is there again."""
    old = lance.dataset(uri).version
    lance.dataset(uri).delete("id in (5, 6)")
    table, left = pennon.open(uri), [0]
    check = merge.KeyCheck.__call__

    def restored_first(self: merge.KeyCheck, base: Any) -> None:
        if left:
            left.pop()
            lance.dataset(uri).checkout_version(old).restore()
            base = base.latest()
        check(self, base)

    with mock.patch.object(merge.KeyCheck, "__call__", restored_first):
        done = table.merge(rows([5, 500], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert ids(uri) == [*range(100), 500]


def test_columns_that_others_add(uri: str) -> None:
    with before_commit(lambda: lance.dataset(uri).add_columns({"more": "id * 2"})):
        done = pennon.open(uri).merge(rows([5, 500], "ours"), on="id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert lance.dataset(uri).to_table(["more"], filter="id in (5, 500)")["more"].to_pylist() in (
        [10, None],
        [None, 10],
    )


def test_writers_that_never_stop(tmp_path: Path) -> None:
    table, _ = twins(tmp_path)
    numbers = iter(range(500, 10_000))
    before = files(table.uri, "data", "_deletions", "_indices")
    append = lambda: lance.write_dataset(rows([next(numbers)]), table.uri, mode="append")  # noqa: E731
    with (
        before_commit(*[append] * 100),
        mock.patch("pennon.jobs.shared.retry.time.sleep"),
        mock.patch.object(merge, "ATTEMPTS", 4),
        pytest.raises(CommitConflict),
    ):
        table.merge(rows([5, 5000], "ours"), on="id")
    assert lance.dataset(table.uri).count_rows("id = 5000") == 0
    left = files(table.uri, "data", "_deletions", "_indices") - before
    assert len(left) == 4, "their appends"
    assert not [name for name in files(table.uri, "_versions") if "manifest-" in name]


@pytest.mark.parametrize("stable", [False, True])
def test_merges_that_race(tmp_path: Path, stable: bool) -> None:
    """Of six writers that all upsert the same new keys, and appends of pylance in between, every key is there once,
    with the values of one of them."""
    table, _ = twins(tmp_path, enable_stable_row_ids=stable)
    uri, failed = table.uri, list[BaseException]()
    before = ids(uri)

    def upsert(number: int) -> None:
        try:
            pennon.open(uri).merge(rows([*range(2000, 2020), *range(40), 3000 + number], f" by {number}"), on="id")
        except CommitConflict:
            failed.append(CommitConflict("x"))
        except BaseException as error:
            failed.append(error)
            raise

    def append(number: int) -> None:
        lance.write_dataset(rows([9000 + number]), uri, mode="append")

    threads = [threading.Thread(target=upsert, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ids(uri)
    assert max(Counter(found).values()) == 1
    done = [number for number in range(6) if 3000 + number in found]
    assert len(done) + len(failed) == 6
    assert done
    assert set(found) == {*before, *range(2000, 2020), *range(40), *range(9000, 9003), *(3000 + n for n in done)}
    marks = {
        text.rpartition(" ")[2]
        for text in lance.dataset(uri).to_table(["s"], filter="id >= 2000 and id < 2020")["s"].to_pylist()
        if text
    }
    assert len(marks) == 1, "one merge after the other"
    assert not [name for name in files(uri, "_versions") if "manifest-" in name]
    lance.dataset(uri).validate()


def test_the_reason_for_exact_commits(tmp_path: Path) -> None:
    """Lance lets an append land between the read and the commit of an update: both insert the key."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(range(10)), uri)
    append = lambda: lance.write_dataset(rows([500]), uri, mode="append")  # noqa: E731
    with mock.patch.object(merge, "commit_inserted_rows", row_changes.commit_moved_rows), before_commit(append):
        pennon.open(uri).merge(rows([500]), on="id")
    assert lance.dataset(uri).count_rows("id = 500") == 2


def test_a_store_that_refuses_an_exact_commit_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers cannot copy on a condition. The merge is committed in another way, and the next one at once."""
    from lance.namespace import DirectoryNamespace  # a second of CPU time in every process of a run

    monkeypatch.setattr(exact_commit, "_refused", set())
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(range(10)), uri)
    asked: list[int] = []

    def refuse(_: object, request: dict[str, int]) -> None:
        asked.append(request["version"])
        raise RuntimeError("Server returned non-2xx status code: 411 Length Required")

    with mock.patch.object(DirectoryNamespace, "create_table_version", refuse):
        for number in range(3):
            done = pennon.open(uri).merge(rows([number, 500 + number], f"by {number}"), on="id")
            assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert asked == [2]
    assert ids(uri) == [*range(10), 500, 501, 502]
    assert not [name for name in files(uri, "_versions") if "manifest-" in name]
