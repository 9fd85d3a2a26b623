"""Streams from a table: rows appended since a version, once, in the order of versions, whatever else happens to it."""

from __future__ import annotations

import pickle
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import pennon
from pennon.errors import CommitConflict, InvalidArgument, InvalidFilter, TableNotFound
from pennon.spark.source import PennonSource
from pennon.spark.stream_reader import PennonStreamReader

Offset = dict[str, Any]


def append(uri: str, start: int, stop: int, *, stable: bool = False, per_file: int = 10) -> None:
    table = pa.table({"id": pa.array(range(start, stop), pa.int64()), "s": [f"s{i}" for i in range(start, stop)]})
    mode = "append" if Path(uri).exists() else "create"
    lance.write_dataset(table, uri, mode=mode, max_rows_per_file=per_file, enable_stable_row_ids=stable)


def reader(uri: str, **options: str) -> PennonStreamReader:
    source = PennonSource(CaseInsensitiveDict(path=uri, **options))
    return source.streamReader(source.schema())


def read(stream: PennonStreamReader, start: Offset, end: Offset) -> list[list[Any]]:
    """The rows of each partition, read as in a task: by another reader, in another process."""
    found: list[list[Any]] = []
    for partition in stream.partitions(start, end):
        task, its = pickle.loads(pickle.dumps((stream, partition)))
        found.append([row for batch in task.read(its) for row in batch.to_pylist()])
    return found


def drain(uri: str, offset: Offset | None = None, **options: str) -> tuple[list[list[int]], Offset]:
    """The ids of each batch until there are no more, and the last offset."""
    stream = reader(uri, **options)
    at = stream.initialOffset() if offset is None else offset
    batches: list[list[int]] = []
    while (end := stream.latestOffset(at)) != at:
        rows = [row["id"] for part in read(stream, at, end) for row in part]
        batches += [rows] if rows else []
        at = end
    return batches, at


def test_starts_at_the_newest_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    batches, at = drain(uri)
    assert batches == []
    append(uri, 20, 30)
    append(uri, 30, 35)
    assert drain(uri, at)[0] == [list(range(20, 35))]


def test_where_a_stream_starts_is_fixed_by_its_first_batch(tmp_path: Path) -> None:
    """Spark logs the end of the first batch. After a restart it asks for the initial offset again."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    for start in ("latest", "snapshot"):
        stream = reader(uri, starting_version=start)
        initial = stream.initialOffset()
        end = stream.latestOffset(initial)
        assert end != initial  # a batch, even without rows, so that Spark logs it
        first = read(stream, initial, end)
        append(uri, 100, 110)
        again = reader(uri, starting_version=start)
        assert again.initialOffset() == initial
        assert read(again, again.initialOffset(), end) == first
        assert [row["id"] for part in read(again, end, again.latestOffset(end)) for row in part] == [*range(100, 110)]


def test_starts_at_a_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    for start in range(0, 50, 10):
        append(uri, start, start + 10)
    assert drain(uri, starting_version="3")[0] == [list(range(20, 50))]
    assert drain(uri, starting_version="1")[0] == [list(range(50))]
    assert drain(uri, starting_version="6")[0] == []
    with pytest.raises(InvalidArgument, match="has 5 versions"):
        reader(uri, starting_version="7")


def test_the_whole_table_first(tmp_path: Path) -> None:
    """Without deleted rows, in batches of whole fragments."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 50)
    lance.dataset(uri).delete("id % 10 = 3 OR id BETWEEN 20 AND 29")
    batches, at = drain(uri, starting_version="snapshot", max_rows_per_trigger="20")
    alive = [i for i in range(50) if i % 10 != 3 and not 20 <= i <= 29]
    assert batches == [alive[:18], alive[18:]]
    append(uri, 50, 60)
    assert drain(uri, at, starting_version="snapshot")[0] == [list(range(50, 60))]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("start", ["1", "latest", "snapshot"])
def test_a_spark_that_does_not_tell_where_a_batch_starts(tmp_path: Path, start: str, restarts: bool) -> None:
    """Up to 4.1 it asks for the newest position without the one that the batch starts at."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    stream = reader(uri, starting_version=start)
    at, batches = stream.initialOffset(), list[list[int]]()
    for more in (20, 30, 40):
        end = stream.latestOffset()
        batches.append([row["id"] for part in read(stream, at, end) for row in part])
        append(uri, more, more + 10)
        lance.dataset(uri).optimize.compact_files()
        at, stream = end, reader(uri, starting_version=start) if restarts else stream
    first = [] if start == "latest" else [*range(20)]
    assert batches == [first, [*range(20, 30)], [*range(30, 40)]]


def test_limits(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 10)
    append(uri, 10, 45)
    append(uri, 45, 50)
    lance.dataset(uri).create_scalar_index("id", "BTREE")  # counts as no version
    append(uri, 50, 55)
    pairs = drain(uri, starting_version="1", max_versions_per_trigger="2")[0]
    assert pairs == [list(range(45)), list(range(45, 55))]
    rows = drain(uri, starting_version="1", max_rows_per_trigger="20")[0]
    assert rows == [list(range(20)), list(range(20, 40)), list(range(40, 55))]
    # A fragment is never divided.
    assert [len(batch) for batch in drain(uri, starting_version="1", max_rows_per_trigger="3")[0]] == [10] * 4 + [5] * 3


def test_what_there_is_now(tmp_path: Path) -> None:
    """Trigger.AvailableNow: rows that come later are left to the next run."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 10)
    stream = reader(uri, starting_version="1", max_versions_per_trigger="1")
    stream.prepareForTriggerAvailableNow()
    append(uri, 10, 20)
    end = stream.latestOffset(stream.initialOffset())
    assert read(stream, stream.initialOffset(), end)[0][-1]["id"] == 9
    assert stream.latestOffset(end) == end
    assert stream.reportLatestOffset() == {"version": 3, "fragment": 0}


def test_partitions_follow_fragments(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 100)
    stream = reader(uri, starting_version="1", rows_per_partition="35")
    parts = read(stream, stream.initialOffset(), stream.latestOffset(stream.initialOffset()))
    assert [len(part) for part in parts] == [30, 30, 30, 10]


@pytest.mark.parametrize("stable", [False, True])
def test_compactions_and_indices_give_nothing(tmp_path: Path, stable: bool) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 30, stable=stable)
    _, at = drain(uri)
    append(uri, 30, 60)
    pennon.open(uri, engine="local").create_index("id")
    pennon.open(uri, engine="local").compact()
    append(uri, 60, 70)
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).update_config({"a": "b"})
    assert len(lance.dataset(uri).get_fragments()) < 7
    assert drain(uri, at)[0] == [list(range(30, 70))]


@pytest.mark.parametrize("stable", [False, True])
def test_deleted_rows(tmp_path: Path, stable: bool) -> None:
    """A deletion gives nothing, and rows that were appended before it are given as they were appended."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 30, stable=stable)
    _, at = drain(uri)
    append(uri, 30, 40)
    lance.dataset(uri).delete("id IN (3, 33)")
    append(uri, 40, 50)
    assert drain(uri, at)[0] == [list(range(30, 50))]


@pytest.mark.parametrize("stable", [False, True])
def test_updated_rows(tmp_path: Path, stable: bool) -> None:
    """By default they stop the stream: an upsert inserts rows that would be missing."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20, stable=stable)
    _, at = drain(uri)
    append(uri, 20, 30)
    source = pa.table({"id": pa.array([5, 99], pa.int64()), "s": ["new", "new"]})
    lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    append(uri, 30, 40)
    with pytest.raises(CommitConflict, match=r"version 3 .* updated rows.*on_update"):
        drain(uri, at)
    assert drain(uri, at, on_update="skip")[0] == [list(range(20, 40))]
    [rows] = drain(uri, at, on_update="rows")[0]
    assert sorted(rows[10:12]) == [5, 99]
    assert rows[:10] + rows[12:] == list(range(20, 40))


def test_overwritten_and_restored_tables(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    _, at = drain(uri)
    append(uri, 20, 30)
    lance.dataset(uri, version=1).restore()
    with pytest.raises(CommitConflict, match=r"version 3 .* made by Restore.*new checkpoint"):
        drain(uri, at)
    lance.write_dataset(pa.table({"id": [1], "s": ["x"]}), uri, mode="overwrite")
    with pytest.raises(CommitConflict, match="made by Overwrite"):
        drain(uri, {"version": 4, "fragment": 0})
    assert drain(uri, starting_version="4")[0] == [[1]]


def test_cleaned_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    _, at = drain(uri)
    append(uri, 20, 30)
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(TableNotFound, match=r"version 2 .* cleaned up before the stream read it.*new checkpoint"):
        drain(uri, at)


def test_changed_columns(tmp_path: Path) -> None:
    """Rows of older versions have NULL in columns that are added later, and follow renamed and cast columns."""
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 3)
    lance.dataset(uri).alter_columns({"path": "s", "name": "text"})  # pyright: ignore[reportArgumentType]
    lance.dataset(uri).add_columns({"extra": "id * 2"})
    lance.dataset(uri).alter_columns({"path": "id", "data_type": pa.int32()})  # pyright: ignore[reportArgumentType]
    lance.write_dataset(
        pa.table({"text": ["z"], "extra": pa.array([7]), "id": pa.array([3], pa.int32())}), uri, mode="append"
    )
    stream = reader(uri, starting_version="1")
    initial = stream.initialOffset()
    rows = [row for part in read(stream, initial, stream.latestOffset(initial)) for row in part]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 0, "text": "s0", "extra": None},
        {"id": 1, "text": "s1", "extra": None},
        {"id": 2, "text": "s2", "extra": None},
        {"id": 3, "text": "z", "extra": 7},
    ]
    only = reader(uri, starting_version="1", columns="extra")
    rows = [row for part in read(only, initial, only.latestOffset(initial)) for row in part]
    assert [row["extra"] for row in rows] == [None, None, None, 7]


def test_filter_columns_and_row_addresses(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    stream = reader(uri, starting_version="1", filter="id % 5 = 0", columns="id", with_row_address="true")
    initial = stream.initialOffset()
    rows = [row for part in read(stream, initial, stream.latestOffset(initial)) for row in part]
    assert rows == [{"id": i, "_rowaddr": (i // 10 << 32) + i % 10} for i in (0, 5, 10, 15)]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"starting_version": "first"}, InvalidArgument, "must be a version, latest or snapshot"),
        ({"starting_version": "0"}, InvalidArgument, "must be a version, latest or snapshot"),
        ({"version": "1"}, InvalidArgument, "starting_version"),
        ({"max_rows_per_trigger": "0"}, InvalidArgument, "whole number from 1"),
        ({"on_update": "maybe"}, InvalidArgument, "must be one of fail, skip, rows"),
        ({"startingversion": "1"}, InvalidArgument, "starting_version"),
        ({"filter": "nothing = 1"}, InvalidFilter, "nothing"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, str], error: type[Exception], words: str) -> None:
    uri = str(tmp_path / "t.lance")
    append(uri, 0, 20)
    with pytest.raises(error, match=words):
        reader(uri, **options)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_histories(tmp_path: Path, seed: int, stable: bool) -> None:
    """Readers that stop and go on anywhere, and read a batch twice: every appended row once, in order."""
    uri, rng, done = str(tmp_path / "t.lance"), random.Random(seed), 0
    append(uri, 0, 10, stable=stable)
    options = {"starting_version": rng.choice(["1", "snapshot"])}
    at: Offset | None = None
    given: list[int] = []
    total = 10
    while done < 25:
        done += 1
        total = change(uri, rng, total)
        if rng.random() < 0.4:
            limits = {"max_rows_per_trigger": str(rng.randrange(5, 40))} if rng.random() < 0.5 else {}
            stream = reader(uri, **options, **limits)
            start = stream.initialOffset() if at is None else at
            end = stream.latestOffset(start)
            rows = [row["id"] for part in read(stream, start, end) for row in part]
            if rng.random() < 0.3:
                again = reader(uri, **options)
                assert [row["id"] for part in read(again, start, end) for row in part] == rows
            given += rows
            at = end
    given += [row for batch in drain(uri, at, **options)[0] for row in batch]
    assert sorted(given) == list(range(total))
    if options["starting_version"] == "1":
        assert given == list(range(total))


def change(uri: str, rng: random.Random, total: int) -> int:
    kind = rng.randrange(6)
    if kind < 3:
        more = rng.randrange(1, 25)
        append(uri, total, total + more)
        return total + more
    if kind == 3:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=rng.randrange(20, 200))
    elif kind == 4:
        pennon.open(uri, engine="local").create_index("id", replace=True)
    else:
        pennon.open(uri, engine="local").maintain(pennon.MaintenancePolicy(min_fragments_to_compact=1))
    return total
