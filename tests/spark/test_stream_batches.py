"""Batches of a stream are appended once: whatever fails between the write, the commit and Spark's own log, whoever else
changes the table in between, and whichever old versions are cleaned up."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import pennon
from pennon.errors import CommitConflict, DamagedTable, InvalidArgument
from pennon.format import streamed_batches
from pennon.format.store import Location, open_store
from pennon.format.transactions import read_transaction
from pennon.spark.source import PennonSource
from pennon.spark.stream_writer import PennonStreamWriter, StreamWritten
from pennon.spark.types import spark_schema

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
ROWS = 7


class Killed(Exception):
    """The end of a process, in the middle of its work."""


def writer(uri: str, **options: str) -> PennonStreamWriter:
    given = {"txn_app_id": "query", **options}
    return PennonSource(CaseInsensitiveDict(path=uri, **given)).streamWriter(spark_schema(SCHEMA), False)


def rows_of(batch: int) -> list[int]:
    return list(range(batch * ROWS, (batch + 1) * ROWS))


def write(uri: str, batch: int, **options: str) -> list[StreamWritten | None]:
    ids = rows_of(batch)
    table = pa.table({"id": ids, "s": [str(i) for i in ids]}, SCHEMA)
    # Two tasks, as Spark has them, and one that failed.
    return [*(writer(uri, **options).write(iter(part.to_batches())) for part in (table[:3], table[3:])), None]


def commit(uri: str, batch: int, **options: str) -> None:
    written = write(uri, batch, **options)
    writer(uri, **options).commit(written, batch)


def ids(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist())


def expected(batches: int) -> list[int]:
    return [i for batch in range(batches) for i in rows_of(batch)]


def files(uri: str) -> set[str]:
    return {path.name for path in Path(uri, "data").glob("*.lance")}


def test_batches_are_recorded_in_their_commits(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    for batch in range(3):
        commit(uri, batch)
    assert ids(uri) == expected(3)
    transaction = read_transaction(open_store(Location.of(uri)), lance.dataset(uri).version)
    assert transaction.name == "Append"
    assert transaction.properties == {"pennon.stream": "query", "pennon.batch": "2"}
    assert lance.dataset(uri).config()["pennon.stream.query"] == '{"batch": 2, "after_version": 5}'


def test_a_repeated_batch_is_skipped_and_its_files_deleted(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    before, version = files(uri), lance.dataset(uri).version
    commit(uri, 0)
    assert (ids(uri), files(uri), lance.dataset(uri).version) == (expected(1), before, version)


def test_streams_do_not_mix(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    commit(uri, 0, txn_app_id="other")
    assert ids(uri) == sorted(expected(1) * 2)


def test_a_batch_without_rows_commits_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    version = lance.dataset(uri).version
    writer(uri).commit([writer(uri).write(iter([])), None], 1)
    writer(uri).commit([], 2)
    assert lance.dataset(uri).version == version


def test_aborted_batches_leave_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    before = files(uri)
    writer(uri).abort(write(uri, 1), 1)
    assert files(uri) == before
    assert ids(uri) == expected(1)


def test_an_abort_after_a_commit_deletes_nothing_that_it_named(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    written = write(uri, 0)
    writer(uri).commit(written, 0)
    writer(uri).abort(written, 0)
    assert ids(uri) == expected(1)


def test_an_older_batch_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    for batch in range(3):
        commit(uri, batch)
    with pytest.raises(CommitConflict, match=r"batch 0 of stream query was to be appended .* after batch 2"):
        commit(uri, 0)
    assert ids(uri) == expected(3)


def test_others_in_between(tmp_path: Path) -> None:
    """Compactions, indices, appends, deletions: the batch is still known."""
    uri = str(tmp_path / "t.lance")
    for batch in range(4):
        commit(uri, batch)
    dataset = lance.dataset(uri)
    dataset.optimize.compact_files()
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(pa.table({"id": [1000], "s": ["x"]}, SCHEMA), uri, mode="append")
    lance.dataset(uri).delete("id = 1000")
    commit(uri, 3)
    assert ids(uri) == expected(4)


def test_a_table_restored_to_an_older_version_takes_the_batch_again(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    version = lance.dataset(uri).version
    commit(uri, 1)
    lance.dataset(uri, version=version).restore()
    assert ids(uri) == expected(1)
    commit(uri, 1)
    assert ids(uri) == expected(2)
    # Restored once more, to the version with the attempt and without the rows.
    lance.dataset(uri, version=version + 1).restore()
    commit(uri, 1)
    assert ids(uri) == expected(2)


def test_cleaned_versions(tmp_path: Path) -> None:
    """A new batch is known to be new; of a repeated one it is unknown, and the user decides."""
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    commit(uri, 1)
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    commit(uri, 2)
    assert ids(uri) == expected(3)
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(CommitConflict, match=r"unknown whether batch 2 of stream query .* cleaned up"):
        commit(uri, 2)
    assert ids(uri) == expected(3)
    commit(uri, 2, unknown_batch="skip")
    assert ids(uri) == expected(3)
    commit(uri, 2, unknown_batch="append")
    assert ids(uri) == sorted([*expected(3), *rows_of(2)])


def test_two_runs_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second commits between the check of the first and its append: one of them takes its rows back."""
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    written, other = write(uri, 1), write(uri, 1)
    plain = streamed_batches.commit_operation

    def late(base: object, operation: object, properties: object = None) -> object:
        if properties:
            monkeypatch.setattr(streamed_batches, "commit_operation", plain)
            writer(uri).commit(other, 1)
        return plain(base, operation, properties)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(streamed_batches, "commit_operation", late)
    with pytest.raises(CommitConflict, match="another run of the stream appended batch 1"):
        writer(uri).commit(written, 1)
    assert ids(uri) == expected(2)
    commit(uri, 2)
    assert ids(uri) == expected(3)


def test_damaged_state(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    lance.dataset(uri).update_config({"pennon.stream.query": "nonsense"})
    with pytest.raises(DamagedTable, match=r"pennon.stream.query = 'nonsense'"):
        commit(uri, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maintain": "often"}, "must be never, auto or a number of batches"),
        ({"maintain": "0"}, "must be never, auto or a number of batches"),
        ({"unknown_batch": "guess"}, "must be one of fail, skip, append"),
        ({"txn_version": "3"}, "Spark numbers the batches"),
        ({"txn_app_id": " "}, "txn_app_id is empty"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        writer(str(tmp_path / "t.lance"), **options)
    assert not (tmp_path / "t.lance").exists()


def test_complete_mode_is_refused(tmp_path: Path) -> None:
    source = PennonSource(CaseInsensitiveDict(path=str(tmp_path / "t.lance")))
    with pytest.raises(InvalidArgument, match="foreachBatch"):
        source.streamWriter(spark_schema(SCHEMA), True)


def test_batch_writes_named_by_hand(tmp_path: Path) -> None:
    """`foreachBatch` calls a batch writer, which is told the name and the number."""
    uri = str(tmp_path / "t.lance")

    def save(batch: int) -> None:
        table = pa.table({"id": rows_of(batch), "s": ["x"] * ROWS}, SCHEMA)
        options = CaseInsensitiveDict(path=uri, txn_app_id="job", txn_version=str(batch))
        writer = PennonSource(options).writer(spark_schema(SCHEMA), False)
        writer.commit([writer.write(iter(table.to_batches()))])

    for batch in (0, 0, 1, 1, 1, 5, 5):
        save(batch)
    assert ids(uri) == sorted([*rows_of(0), *rows_of(1), *rows_of(5)])


@pytest.mark.parametrize("seed", range(4))
def test_random_failures(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, tally: Callable[[str, int], None]
) -> None:
    """Spark's part, in this process: it repeats the last batch until its own log has it."""
    tally("kills of a stream", lose_nothing(str(tmp_path / "t.lance"), random.Random(seed), 25, monkeypatch))


@pytest.mark.heavy
def test_many_random_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Callable[[str, int], None]
) -> None:
    killed = sum(
        lose_nothing(str(tmp_path / f"{seed}.lance"), random.Random(seed), 25, monkeypatch)
        for seed in (*range(4, 12), *range(100, 140))
    )
    tally("kills of a stream", killed)
    assert killed >= 200


@pytest.mark.heavy
def test_a_thousand_batches_leave_few_segments(tmp_path: Path) -> None:
    """By the upkeep of the stream alone; every row is found through the index, and once."""
    uri = str(tmp_path / "t.lance")
    commit(uri, 0)
    pennon.open(uri, engine="local").create_index("id")
    for batch in range(1, 1000):
        commit(uri, batch, maintain="auto")
    table = pennon.open(uri, engine="local")
    [index] = table.indices()
    assert len(index.segments) <= 12
    assert not index.uncovered_fragments
    assert len(lance.dataset(uri).get_fragments()) <= 100
    assert ids(uri) == expected(1000)
    assert table.scan("id IN (0, 3500, 6999)", ["id"])["id"].to_pylist() == [0, 3500, 6999]


def lose_nothing(uri: str, rng: random.Random, batches: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how often the stream was killed."""
    done = killed = 0
    while done < batches:
        others(uri, rng)
        try:
            written = write(uri, done)
            if rng.random() < 0.2:
                raise Killed
            with monkeypatch.context() as patched:
                kill_in_commit(patched, rng)
                writer(uri).commit(written, done)
            if rng.random() < 0.3:
                raise Killed
        except Killed:
            killed += 1
            continue
        done += 1
    assert ids(uri) == expected(batches)
    return killed


def kill_in_commit(patched: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Before or after one of the commits of a batch, as often as not."""
    left = rng.randrange(8)
    plain = streamed_batches.commit_operation

    def counted(*given: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        done = plain(*given)  # pyright: ignore[reportArgumentType]
        left -= 1
        if left == 0:
            raise Killed
        return done

    patched.setattr(streamed_batches, "commit_operation", counted)


def others(uri: str, rng: random.Random) -> None:
    """What others do to the table. Versions are cleaned up only while the last batch is known."""
    if not Path(uri).exists():
        return
    work: list[Callable[[], object]] = [
        lambda: lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000),
        lambda: pennon.open(uri, engine="local").create_index("id", replace=True),
        lambda: pennon.open(uri, engine="local").maintain(),
        lambda: lance.dataset(uri).update_config({"other": str(rng.random())}),
        lambda: lance.dataset(uri).delete("id < 0"),
    ]
    if rng.random() < 0.5:
        rng.choice(work)()
