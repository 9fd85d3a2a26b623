"""A column replaced in place: same fragments, new values, and no index that answers with the old ones."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon.errors import CommitConflict, InvalidArgument, UnsupportedColumn
from pennon.format.column_update import ColumnFile, commit_column_update, discard_column_file, write_column_file
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from tests.support.tables import full_scan, stock_answer

DIMENSION = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.int64()),
        ("text", pa.string()),
        ("inner", pa.struct([("leaf", pa.int64()), ("items", pa.list_(pa.int32()))])),
        ("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def rows_of(rows: int, shift: int = 0) -> pa.Table:
    n = [i + shift for i in range(rows)]
    return pa.table(
        {
            "id": n,
            "v": [None if i % 7 == 0 else i * 2 for i in n],
            "text": [f"t{i}" for i in n],
            "inner": [{"leaf": None if i % 11 == 0 else i, "items": [i] * (i % 3)} for i in n],
            "vec": [[float(i + d) for d in range(DIMENSION)] for i in n],
        },
        schema=SCHEMA,
    )


def write(path: Path, **options: Any) -> str:
    """Four fragments of 100 rows, some rows deleted in each; the first and the last row of fragment 1 among them."""
    uri = str(path)
    dataset = lance.write_dataset(rows_of(400), uri, max_rows_per_file=100, **options)
    dataset.create_scalar_index("v", "BTREE", name="by_v")
    dataset.create_scalar_index("inner.leaf", "BTREE", name="by_leaf")
    dataset.create_scalar_index("text", "BTREE", name="by_text")
    lance.dataset(uri).delete("id % 10 = 3 or id in (100, 101, 199)")
    return uri


def opened(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def coverage(snapshot: Snapshot) -> dict[str, set[int]]:
    return {s.name: set(s.fragments & snapshot.manifest.live) for s in snapshot.manifest.user_segments}


def rewrite(snapshot: Snapshot, fragment: int, column: str, shift: int = 1000, pieces: int = 17) -> ColumnFile:
    """New values for the live rows: those of the row with an id `shift` higher."""
    live = snapshot.dataset.get_fragment(fragment).scanner(columns=["id"]).to_table()["id"].to_numpy()
    values = rows_of(int(live.max()) + 1, shift)[column].combine_chunks().take(pa.array(live))
    parts = [values.slice(i, pieces) for i in range(0, len(values), pieces)]
    return write_column_file(snapshot.pin(), fragment, column, parts)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", ["2.0", "2.1", None])
@pytest.mark.parametrize("column", ["v", "text", "inner", "vec"])
def test_values_change_in_place_and_nothing_else(tmp_path, column: str, version: str | None, stable: bool):
    uri = write(tmp_path / "t", data_storage_version=version, enable_stable_row_ids=stable)
    before = opened(uri)
    files = pickle.loads(pickle.dumps([rewrite(before, 1, column), rewrite(before, 2, column)]))
    after = commit_column_update(before, files)

    assert list(after.manifest.fragments) == list(before.manifest.fragments)
    old, new = before.dataset.to_table(), lance.dataset(uri).to_table()
    touched = (old["id"].to_numpy() >= 100) & (old["id"].to_numpy() < 300)
    assert new.drop_columns([column]).equals(old.drop_columns([column]))
    shifted = rows_of(400, 1000)[column].to_pylist()
    expected = [
        shifted[i] if t else o for i, o, t in zip(old["id"].to_pylist(), old[column].to_pylist(), touched, strict=True)
    ]
    assert new[column].to_pylist() == expected


@pytest.mark.parametrize("stable", [False, True])
def test_no_index_of_the_column_covers_the_fragments_afterwards(tmp_path, stable: bool):
    uri = write(tmp_path / "t", enable_stable_row_ids=stable)
    everything = {0, 1, 2, 3}
    after = commit_column_update(opened(uri), [rewrite(opened(uri), 1, "v")])
    assert coverage(after) == {"by_v": everything - {1}, "by_leaf": everything, "by_text": everything}
    after = commit_column_update(after, [rewrite(after, 2, "inner")])
    assert coverage(after) == {"by_v": everything - {1}, "by_leaf": everything - {2}, "by_text": everything}
    for condition in ("v = 222", "v = 2222", "v is null", "inner.leaf = 222", "inner.leaf = 1222", "text = 't222'"):
        assert stock_answer(uri, condition)[0] == full_scan(uri, condition), condition
    assert full_scan(uri, "v = 2222") == [111]
    assert full_scan(uri, "inner.leaf = 1222") == [222]


def test_coverage_is_pruned_through_an_outstanding_deferred_compaction(tmp_path):
    uri = write(tmp_path / "t")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True)
    base = opened(uri)
    first, *rest = base.manifest.fragments
    after = commit_column_update(base, [rewrite(base, first, "v")])
    assert coverage(after)["by_v"] == set(rest)
    for condition in ("v = 22", "v = 2022", "v = 402"):
        assert stock_answer(uri, condition)[0] == full_scan(uri, condition)
    assert full_scan(uri, "v = 2022") == [11]


def test_rows_are_marked_as_updated_on_tables_with_stable_row_ids(tmp_path):
    uri = write(tmp_path / "t", enable_stable_row_ids=True)
    after = commit_column_update(opened(uri), [rewrite(opened(uri), 1, "v")])
    versions = after.dataset.to_table(columns=["id", "_row_last_updated_at_version"])
    updated = {i for i, v in zip(*(c.to_pylist() for c in versions.columns), strict=True) if v == after.version}
    assert updated == {i for i in range(102, 199) if i % 10 != 3}


def test_a_column_can_be_replaced_again(tmp_path):
    uri = write(tmp_path / "t")
    after = commit_column_update(opened(uri), [rewrite(opened(uri), 1, "v")])
    after = commit_column_update(after, [rewrite(after, 1, "v", shift=5000)])
    assert full_scan(uri, f"v = {2 * 5111}") == [111]
    assert full_scan(uri, f"v = {2 * 1111}") == []
    assert lance.dataset(uri).validate() is None


def test_rows_deleted_meanwhile_stay_deleted(tmp_path):
    uri = write(tmp_path / "t")
    base = opened(uri)
    file = rewrite(base, 1, "v")
    lance.dataset(uri).delete("id = 111")
    after = commit_column_update(base.latest(), [file])
    assert full_scan(uri, "id = 111") == []
    assert full_scan(uri, "v = 2224") == [112]
    assert after.manifest.fragments[1].num_deleted_rows == base.manifest.fragments[1].num_deleted_rows + 1


def _append(uri: str) -> None:
    lance.write_dataset(rows_of(10, 400), uri, mode="append")


def _index(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("v", "BTREE", name="second")


@pytest.mark.parametrize("change", [_append, _index])
def test_what_others_do_elsewhere_does_not_disturb(tmp_path, change: Callable[[str], None]):
    uri = write(tmp_path / "t")
    base = opened(uri)
    file = rewrite(base, 1, "v")
    change(uri)
    after = commit_column_update(base, [file])
    assert all(1 not in fragments for name, fragments in coverage(after).items() if name in ("by_v", "second"))
    assert stock_answer(uri, "v = 2222")[0] == full_scan(uri, "v = 2222") == [111]


def _replace(uri: str) -> None:
    commit_column_update(opened(uri), [rewrite(opened(uri), 1, "v", shift=7000)])


def _compact(uri: str) -> None:
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)


def _drop(uri: str) -> None:
    lance.dataset(uri).drop_columns(["v"])


@pytest.mark.parametrize("change", [_replace, _compact, _drop])
def test_a_fragment_that_is_not_what_was_read_is_a_conflict(tmp_path, change: Callable[[str], None]):
    uri = write(tmp_path / "t")
    base = opened(uri)
    file = rewrite(base, 1, "v")
    change(uri)
    before = lance.dataset(uri).to_table()
    with pytest.raises(CommitConflict):
        commit_column_update(base.latest(), [file])
    discard_column_file(base.store, file)
    assert not base.store.exists(f"data/{file.file.path}")
    assert lance.dataset(uri).to_table().equals(before)


@pytest.mark.parametrize("change", [_replace, _compact])
def test_a_conflict_is_noticed_in_the_instant_of_the_commit(tmp_path, change: Callable[[str], None]):
    uri = write(tmp_path / "t")
    base = opened(uri)
    file = rewrite(base, 1, "v")
    change(uri)
    with pytest.raises(CommitConflict):
        commit_column_update(base, [file])


def test_a_committed_file_is_not_discarded(tmp_path):
    uri = write(tmp_path / "t")
    base = opened(uri)
    file = rewrite(base, 1, "v")
    commit_column_update(base, [file])
    discard_column_file(base.store, file)
    assert full_scan(uri, "v = 2222") == [111]


def test_values_that_do_not_fit_are_refused(tmp_path):
    uri = write(tmp_path / "t")
    base = opened(uri)
    live = base.manifest.fragments[1].live_rows
    pin = base.pin()
    files = base.store.list("data")
    with pytest.raises(InvalidArgument, match="live rows"):
        write_column_file(pin, 1, "v", [pa.array(np.arange(live - 1))])
    with pytest.raises(InvalidArgument, match="live rows"):
        write_column_file(pin, 1, "v", [pa.array(np.arange(live + 1))])
    with pytest.raises(InvalidArgument, match="int64, not"):
        write_column_file(pin, 1, "v", [pa.array(np.arange(live), pa.int32())])
    with pytest.raises(InvalidArgument, match="NULL"):
        write_column_file(pin, 1, "id", [pa.nulls(live, pa.int64())])
    with pytest.raises(InvalidArgument, match="no fragment 9"):
        write_column_file(pin, 9, "v", [])
    with pytest.raises(UnsupportedColumn, match="part of another column"):
        write_column_file(pin, 1, "inner.leaf", [pa.array(np.arange(live))])
    assert sorted(base.store.list("data")) == sorted(files)
    with pytest.raises(InvalidArgument, match="one column"):
        commit_column_update(base, [])
