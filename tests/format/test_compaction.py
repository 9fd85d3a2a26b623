"""Compaction: the rows stay what they are, the moves are known exactly, and no commit goes over another's head."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64, FrozenBitMap

from pennon.errors import CommitConflict, InvalidArgument, UnsupportedTable
from pennon.format.cleanup import clean_up, delete_orphans, orphans
from pennon.format.commit import RetryableConflict, commit_segments
from pennon.format.compaction import (
    CompactionOptions,
    Rewritten,
    assign_fragment_ids,
    commit_deferred,
    commit_dropping,
    commit_remapped,
    discard,
    execute_compaction,
    group_moves,
    plan_compaction,
    remappable_at_once,
    still_valid,
)
from pennon.format.index_metadata import IndexSegment
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from tests.support.tables import full_scan, stock_answer

ROWS, PER_FRAGMENT, DIMENSION = 1000, 100, 8
OPTIONS = CompactionOptions(target_rows_per_fragment=400)
COMMITS: list[Callable[[Snapshot, Sequence[Rewritten]], Snapshot]] = [commit_deferred, commit_dropping]
CONDITIONS = ["v = 222", "v < 100", "v is null", "v between 900 and 950", "v = 5000"]


def rows_of(rows: int, start: int = 0) -> pa.Table:
    n = range(start, start + rows)
    vectors = np.random.default_rng(start).random((rows, DIMENSION), dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "v": pa.array([None if i % 7 == 0 else i * 2 for i in n], pa.int64()),
            "text": [f"t{i}" for i in n],
            "inner": [None if i % 11 == 0 else {"leaf": i, "items": [i] * (i % 3)} for i in n],
            "vec": pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSION),
        }
    )


def write(path: Path, *, index: bool = True, **options: Any) -> str:
    """Ten fragments, a tenth of each deleted, most of fragment 4 and all of fragment 6."""
    uri = str(path)
    dataset = lance.write_dataset(rows_of(ROWS), uri, max_rows_per_file=PER_FRAGMENT, **options)
    if index:
        dataset.create_scalar_index("v", "BTREE", name="by_v")
    dataset = lance.dataset(uri)
    dataset.delete("id % 10 = 3 or (id >= 405 and id < 500)")
    dataset.delete("id >= 600 and id < 700")
    return uri


def opened(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def everything(uri: str) -> pa.Table:
    return lance.dataset(uri).scanner(use_scalar_index=False).to_table().sort_by("id")


def addresses_by_id(uri: str) -> dict[int, int]:
    table = lance.dataset(uri).scanner(columns=["id"], with_row_address=True, use_scalar_index=False).to_table()
    return dict(zip(table["id"].to_pylist(), table["_rowaddr"].to_pylist(), strict=True))


def rewrite(snapshot: Snapshot, options: CompactionOptions = OPTIONS) -> list[Rewritten]:
    """As a job does it, with pickles between driver and executors."""
    tasks = pickle.loads(pickle.dumps(plan_compaction(snapshot, options).tasks))
    return pickle.loads(pickle.dumps([execute_compaction(snapshot.pin(), task) for task in tasks]))


def moved(content: bytes) -> dict[int, int]:
    """Old address -> new address, by the letter of the format."""
    [version] = pb.FragmentReuseContent.FromString(content).versions
    result: dict[int, int] = {}
    for group in version.groups:
        survivors = BitMap64.deserialize(group.changed_row_addrs)
        old = [(f.id << 32) | row for f in group.old_fragments for row in range(f.physical_rows)]
        new = [(f.id << 32) | row for f in group.new_fragments for row in range(f.physical_rows)]
        result |= zip([address for address in old if address in survivors], new, strict=True)
    return result


def check_answers(uri: str) -> None:
    for condition in CONDITIONS:
        assert stock_answer(uri, condition)[0] == full_scan(uri, condition), condition


class TestPlan:
    def test_tasks_name_their_fragments_and_touch_nothing(self, tmp_path):
        snapshot = opened(write(tmp_path / "t"))
        files = snapshot.store.list("data")
        plan = plan_compaction(snapshot, OPTIONS)
        assert plan.version == snapshot.version
        assert [f.id for task in plan.tasks for f in task.fragments] == list(snapshot.manifest.fragments)
        for task in plan.tasks:
            for fragment in task.fragments:
                assert fragment.live_rows == snapshot.manifest.fragments[fragment.id].live_rows
                assert fragment.size_bytes == sum((tmp_path / "t/data" / f).stat().st_size for f in fragment.files)
            assert task.rows == sum(f.live_rows for f in task.fragments)
        assert snapshot.store.list("data") == files
        assert snapshot.latest() is snapshot

    def test_a_table_in_good_shape_has_nothing_to_compact(self, tmp_path):
        lance.write_dataset(rows_of(100), tmp_path / "t")
        assert plan_compaction(opened(str(tmp_path / "t")), OPTIONS).tasks == ()

    def test_options_reach_the_planner(self, tmp_path):
        snapshot = opened(write(tmp_path / "t"))
        some = plan_compaction(snapshot, CompactionOptions(target_rows_per_fragment=200, max_source_fragments=4))
        assert sum(len(task.fragments) for task in some.tasks) <= 4
        only_small = CompactionOptions(target_rows_per_fragment=50, materialize_deletions=False)
        assert [f.id for task in plan_compaction(snapshot, only_small).tasks for f in task.fragments] == []
        mostly_gone = CompactionOptions(target_rows_per_fragment=50, materialize_deletions_threshold=0.5)
        assert [f.id for task in plan_compaction(snapshot, mostly_gone).tasks for f in task.fragments] == [4]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"target_rows_per_fragment": 0},
            {"batch_size": -1},
            {"max_source_rows": 0},
            {"materialize_deletions_threshold": 1.5},
        ],
    )
    def test_senseless_options_are_refused(self, wrong: dict[str, Any]):
        with pytest.raises(InvalidArgument):
            CompactionOptions(**wrong)


@pytest.mark.parametrize("version", ["2.0", None])
@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("stable", [False, True])
def test_moves_are_those_a_scan_finds(tmp_path, stable: bool, index: bool, version: str | None):
    rows_without_null_structs = rows_of(ROWS).drop_columns(["inner"])
    uri = str(tmp_path / "t")
    lance.write_dataset(
        rows_without_null_structs, uri, max_rows_per_file=90, enable_stable_row_ids=stable, data_storage_version=version
    )
    if index:
        lance.dataset(uri).create_scalar_index("v", "BTREE", name="by_v")
    lance.dataset(uri).delete("id % 9 = 2 or (id > 300 and id < 420)")
    before, content = addresses_by_id(uri), everything(uri)
    base = opened(uri)
    rewritten = assign_fragment_ids(base, rewrite(base, CompactionOptions(target_rows_per_fragment=150)))
    assert len(rewritten) > 1
    committed = commit_dropping(base, rewritten)
    after = addresses_by_id(uri)
    moves = moved(group_moves(rewritten))
    assert {i: moves.get(address, address) for i, address in before.items()} == after
    assert {f.id for group in rewritten for f in group.new} <= set(committed.manifest.fragments)
    assert everything(uri).equals(content)


def test_survivors_are_what_pylance_itself_records(tmp_path):
    uri = write(tmp_path / "t")
    committed = commit_deferred(opened(uri), rewrite(opened(uri)))
    segment = committed.manifest.reuse_segment
    assert segment is not None
    recorded = pb.FragmentReuseDetails.FromString(segment.details).inline
    again = write(tmp_path / "again")
    lance.dataset(again).optimize.compact_files(target_rows_per_fragment=400, defer_index_remap=True)
    stock = opened(again).manifest.reuse_segment
    assert stock is not None
    assert recorded == pb.FragmentReuseDetails.FromString(stock.details).inline


def test_moves_need_ids(tmp_path):
    with pytest.raises(InvalidArgument, match="no ids yet"):
        group_moves(rewrite(opened(write(tmp_path / "t"))))


class TestDeferred:
    def test_rows_stay_and_the_reuse_index_leads_to_them(self, tmp_path):
        uri = write(tmp_path / "t")
        base, content = opened(uri), everything(uri)
        committed = commit_deferred(base, rewrite(base))
        assert base.dataset.version == base.version
        assert everything(uri).equals(content)
        assert committed.version == committed.dataset.version == lance.dataset(uri).version
        assert len(committed.manifest.fragments) < len(base.manifest.fragments)
        assert committed.manifest.reuse_segment is not None
        assert [s.uuid for s in committed.manifest.user_segments] == [s.uuid for s in base.manifest.user_segments]
        check_answers(uri)
        assert stock_answer(uri, "v = 222")[1]

    def test_it_adds_to_the_moves_of_earlier_ones(self, tmp_path):
        uri = write(tmp_path / "t")
        content = everything(uri)
        first = commit_deferred(opened(uri), rewrite(opened(uri), CompactionOptions(target_rows_per_fragment=150)))
        second = commit_deferred(first, rewrite(first, CompactionOptions(target_rows_per_fragment=5000)))
        assert second.manifest.reuse_segment is not None
        details = pb.FragmentReuseDetails.FromString(second.manifest.reuse_segment.details)
        assert len(details.inline.versions) == 2
        assert len(second.manifest.fragments) == 1
        assert everything(uri).equals(content)
        check_answers(uri)

    def test_it_is_refused_where_row_ids_are_stable(self, tmp_path):
        uri = write(tmp_path / "t", enable_stable_row_ids=True)
        with pytest.raises(UnsupportedTable, match="stable row ids"):
            commit_deferred(opened(uri), rewrite(opened(uri)))

    def test_two_of_them_at_once_both_succeed(self, tmp_path):
        uri = write(tmp_path / "t")
        base, content = opened(uri), everything(uri)
        first, *others = rewrite(base, CompactionOptions(target_rows_per_fragment=150))
        commit_deferred(base, [first])
        with pytest.raises(RetryableConflict):
            commit_deferred(base, others)
        commit_deferred(base.latest(), others)
        assert everything(uri).equals(content)
        check_answers(uri)


@pytest.mark.parametrize("stable", [False, True])
class TestDropping:
    def test_rows_stay_and_no_index_covers_the_new_fragments(self, tmp_path, stable: bool):
        uri = write(tmp_path / "t", enable_stable_row_ids=stable)
        base, content = opened(uri), everything(uri)
        committed = commit_dropping(base, rewrite(base))
        assert everything(uri).equals(content)
        assert committed.version == base.version + 1
        assert min(committed.manifest.fragments) > max(base.manifest.fragments)
        [segment] = committed.manifest.user_segments
        assert not segment.fragments & committed.manifest.live
        assert committed.manifest.reuse_segment is None
        check_answers(uri)
        # Row ids, where they are stable, are kept.
        assert lance.dataset(uri).validate() is None

    def test_fragments_left_alone_stay_covered(self, tmp_path, stable: bool):
        uri = write(tmp_path / "t", enable_stable_row_ids=stable)
        base = opened(uri)
        left, *rewritten = rewrite(base)
        committed = commit_dropping(base, rewritten)
        [segment] = committed.manifest.user_segments
        assert segment.fragments & committed.manifest.live == left.old_ids
        check_answers(uri)


def test_dropping_over_outstanding_moves_leaves_answers_right(tmp_path):
    uri = write(tmp_path / "t")
    content = everything(uri)
    first = commit_deferred(opened(uri), rewrite(opened(uri), CompactionOptions(target_rows_per_fragment=150)))
    commit_dropping(first, rewrite(first, CompactionOptions(target_rows_per_fragment=5000)))
    assert everything(uri).equals(content)
    check_answers(uri)


def test_an_index_by_row_id_follows_whole_groups_and_loses_half_covered_ones(tmp_path):
    uri = write(tmp_path / "t", index=False, enable_stable_row_ids=True)
    planned = opened(uri)
    rewritten = assign_fragment_ids(planned, rewrite(planned, CompactionOptions(target_rows_per_fragment=250)))
    lance.dataset(uri).create_index("vec", "IVF_FLAT", num_partitions=2, name="near")
    base = opened(uri)
    [whole] = base.manifest.user_segments
    first, second, *_ = (group.old_ids for group in rewritten)
    base = commit_segments(base, [replace(whole, fragments=FrozenBitMap(first | BitMap([min(second)])))], [])
    committed = commit_dropping(base, rewritten)
    [segment] = committed.manifest.user_segments
    assert segment.uuid == whole.uuid
    assert segment.fragments & committed.manifest.live == BitMap(f.id for f in rewritten[0].new)
    query = {"column": "vec", "q": rows_of(ROWS)["vec"][111].as_py(), "k": 5, "nprobes": 2}
    with_index, without = (
        lance.dataset(uri).to_table(columns=["id"], nearest=query | {"use_index": use})["id"].to_pylist()
        for use in (True, False)
    )
    assert with_index == without


def test_stable_row_ids_survive_every_commit(tmp_path):
    uri = write(tmp_path / "t", enable_stable_row_ids=True)
    lance.dataset(uri).update({"text": "'changed'"}, where="id % 50 = 1")

    def ids() -> pa.Table:
        return lance.dataset(uri).scanner(columns=["id"], with_row_id=True).to_table().sort_by("id")

    before = ids()
    commit_dropping(opened(uri), rewrite(opened(uri)))
    assert ids().equals(before)


def remapped_btree(snapshot: Snapshot, segment: IndexSegment, moves: dict[int, int]) -> IndexSegment:
    """A B-tree segment whose pages carry new addresses, its values where they were. Rows that are gone keep addresses
    no fragment has."""
    uuid = str(uuid4())
    store = snapshot.store
    for file in segment.files:
        reader = store.open_reader(f"{segment.directory}/{file.path}")
        table = reader.read_all().to_table()
        if "ids" in table.column_names:
            stored = table["ids"].to_pylist()
            fresh = pa.array([moves.get(a, (0xFFFF_FFF0 << 32) | (a & 0xFFFF)) for a in stored], pa.uint64())
            table = table.set_column(table.column_names.index("ids"), "ids", fresh)
        with store.open_writer(f"_indices/{uuid}/{file.path}", schema=table.schema) as writer:
            for key, value in (reader.metadata().schema.metadata or {}).items():
                writer.add_schema_metadata(key.decode(), value.decode())
            writer.write_batch(table)
    return replace(segment, uuid=uuid, files=(), fragments=FrozenBitMap())


class TestRemapped:
    @pytest.mark.parametrize("stable", [False, True])
    def test_new_index_files_come_with_the_new_fragments(self, tmp_path, stable: bool):
        uri = write(tmp_path / "t", enable_stable_row_ids=stable)
        base, content = opened(uri), everything(uri)
        rewritten = assign_fragment_ids(base, rewrite(base))
        [old] = base.manifest.user_segments
        new = remapped_btree(base, old, moved(group_moves(rewritten)))
        lance.write_dataset(rows_of(10, 5000), uri, mode="append")
        committed = commit_remapped(base, rewritten, [(old, new)])
        [segment] = committed.manifest.user_segments
        assert segment.uuid == new.uuid
        assert segment.name == "by_v"
        expected = BitMap(f.id for group in rewritten for f in group.new)
        assert segment.fragments & committed.manifest.live == expected
        assert {f.path for f in segment.files} == {f.path for f in old.files}
        assert everything(uri).filter(pa.compute.field("id") < ROWS).equals(content)
        check_answers(uri)
        assert stock_answer(uri, "v = 222") == ([111], True)

    def test_on_top_of_outstanding_moves(self, tmp_path):
        uri = write(tmp_path / "t")
        before = addresses_by_id(uri)
        base = commit_deferred(opened(uri), rewrite(opened(uri), CompactionOptions(target_rows_per_fragment=150)))
        middle = addresses_by_id(uri)
        rewritten = assign_fragment_ids(base, rewrite(base, CompactionOptions(target_rows_per_fragment=5000)))
        last = moved(group_moves(rewritten))
        moves = {before[i]: last.get(middle[i], middle[i]) for i in before}
        [old] = base.manifest.user_segments
        committed = commit_remapped(base, rewritten, [(old, remapped_btree(base, old, moves))])
        [segment] = committed.manifest.user_segments
        assert segment.fragments & committed.manifest.live == committed.manifest.live
        check_answers(uri)
        assert stock_answer(uri, "v = 222") == ([111], True)

    def test_an_id_that_is_taken_is_a_conflict_to_retry(self, tmp_path):
        uri = write(tmp_path / "t")
        base = opened(uri)
        data = rewrite(base)
        lance.write_dataset(rows_of(10, 5000), uri, mode="append")
        with pytest.raises(RetryableConflict, match="two fragments"):
            commit_remapped(base, assign_fragment_ids(base, data, spare=0), [])
        base = base.latest()
        commit_remapped(base, assign_fragment_ids(base, data, spare=0), [])
        assert lance.dataset(uri).count_rows() == base.dataset.count_rows()

    def test_ids_stay_clear_of_concurrent_writers(self, tmp_path):
        base = opened(write(tmp_path / "t"))
        data = rewrite(base)
        one, other = assign_fragment_ids(base, data), assign_fragment_ids(base, data)
        ids = [f.id for group in one for f in group.new]
        assert len(set(ids)) == len(ids)
        assert min(i for i in ids if i is not None) > base.manifest.max_fragment_id + 1000
        assert [g.new[0].physical_rows for g in one] == [g.new[0].physical_rows for g in other]

    def test_a_group_that_a_segment_covers_in_part_takes_two_steps(self, tmp_path):
        uri = str(tmp_path / "t")
        lance.write_dataset(rows_of(ROWS), uri, max_rows_per_file=PER_FRAGMENT)
        base = opened(uri)
        rewritten = assign_fragment_ids(base, rewrite(base, CompactionOptions(target_rows_per_fragment=5000)))
        dataset = lance.dataset(uri)
        segment = dataset.create_index_uncommitted("v", "BTREE", name="by_v", fragment_ids=[0, 1, 2])
        dataset.commit_existing_index_segments("by_v", "v", [segment])
        base = base.latest()
        [old] = base.manifest.user_segments
        assert not remappable_at_once(rewritten, [old.fragments])
        new = remapped_btree(base, old, moved(group_moves(rewritten)))
        with pytest.raises(InvalidArgument, match="covers part"):
            commit_remapped(base, rewritten, [(old, new)])
        commit_dropping(base, rewritten)
        check_answers(uri)

    def test_whole_or_nothing_is_covered(self, tmp_path):
        rewritten = rewrite(opened(write(tmp_path / "t")), CompactionOptions(target_rows_per_fragment=150))
        first, second, *_ = (group.old_ids for group in rewritten)
        assert remappable_at_once(rewritten, [])
        assert remappable_at_once(rewritten, [first, first | second | BitMap([77]), BitMap()])
        assert not remappable_at_once(rewritten, [first | BitMap([min(second)])])

    def test_a_segment_that_was_replaced_meanwhile_is_a_conflict_to_retry(self, tmp_path):
        uri = write(tmp_path / "t")
        base = opened(uri)
        rewritten = assign_fragment_ids(base, rewrite(base))
        [old] = base.manifest.user_segments
        new = remapped_btree(base, old, moved(group_moves(rewritten)))
        lance.dataset(uri).create_scalar_index("v", "BTREE", name="by_v", replace=True)
        with pytest.raises(RetryableConflict):
            commit_remapped(base, rewritten, [(old, new)])
        with pytest.raises(RetryableConflict, match="was replaced"):
            commit_remapped(base.latest(), rewritten, [(old, new)])

    def test_a_segment_replaced_in_the_instant_of_the_commit_leaves_answers_right(self, tmp_path):
        uri = write(tmp_path / "t")
        base, content = opened(uri), everything(uri)
        rewritten = assign_fragment_ids(base, rewrite(base, CompactionOptions(target_rows_per_fragment=150)))
        one, other = rewritten[:1], rewritten[1:]
        [old] = base.manifest.user_segments
        unmoved = {address: address for address in addresses_by_id(uri).values()}
        first, second = (remapped_btree(base, old, unmoved | moved(group_moves(part))) for part in (one, other))
        commit_remapped(base, one, [(old, first)])
        committed = commit_remapped(base, other, [(old, second)])
        assert [s.uuid for s in committed.manifest.user_segments] == [first.uuid]
        assert everything(uri).equals(content)
        check_answers(uri)
        assert stock_answer(uri, "v = 22") == ([11], True)

    def test_index_files_need_fragments_with_ids(self, tmp_path):
        base = opened(write(tmp_path / "t"))
        [old] = base.manifest.user_segments
        with pytest.raises(InvalidArgument, match="no ids yet"):
            commit_remapped(base, rewrite(base), [(old, replace(old, uuid=str(uuid4())))])


def _delete(uri: str) -> None:
    lance.dataset(uri).delete("id = 111")


def _update(uri: str) -> None:
    lance.dataset(uri).update({"text": "'new'"}, where="id = 111")


def _add_column(uri: str) -> None:
    lance.dataset(uri).add_columns({"w": "v + 1"})


def _compact(uri: str) -> None:
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("change", [_delete, _update, _add_column, _compact])
def test_work_on_fragments_that_changed_is_void(tmp_path, commit: Any, change: Callable[[str], None]):
    uri = write(tmp_path / "t")
    base = opened(uri)
    [*rewritten] = rewrite(base)
    change(uri)
    content = everything(uri)
    with pytest.raises(CommitConflict):  # caught by pylance, in the instant of the commit
        commit(base, rewritten)
    assert not all(still_valid(base.latest(), group) for group in rewritten)
    with pytest.raises(CommitConflict, match="changed, deleted or compacted") as caught:
        commit(base.latest(), rewritten)
    assert not isinstance(caught.value, RetryableConflict)
    assert everything(uri).equals(content)


@pytest.mark.parametrize("commit", COMMITS)
def test_groups_others_left_alone_can_still_be_committed(tmp_path, commit: Any):
    uri = write(tmp_path / "t")
    base = opened(uri)
    rewritten = rewrite(base, CompactionOptions(target_rows_per_fragment=150))
    _delete(uri)
    content, now = everything(uri), base.latest()
    valid = [group for group in rewritten if still_valid(now, group)]
    assert len(valid) == len(rewritten) - 1
    commit(now, valid)
    assert everything(uri).equals(content)
    check_answers(uri)


def _append(uri: str) -> None:
    lance.write_dataset(rows_of(10, 5000), uri, mode="append")


def _create_index(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("text", "BTREE", name="by_text")


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("change", [_append, _create_index])
def test_what_leaves_the_fragments_alone_does_not_disturb(tmp_path, commit: Any, change: Callable[[str], None]):
    uri = write(tmp_path / "t")
    base = opened(uri)
    rewritten = rewrite(base)
    change(uri)
    content = everything(uri)
    commit(base.latest(), rewritten)
    assert everything(uri).equals(content)
    check_answers(uri)
    assert stock_answer(uri, "text = 't222'")[0] == [222]


def test_an_append_in_the_instant_of_the_commit_is_fine(tmp_path):
    for name, commit in zip("ab", COMMITS, strict=True):
        uri = write(tmp_path / name)
        base = opened(uri)
        rewritten = rewrite(base)
        _append(uri)
        content = everything(uri)
        commit(base, rewritten)
        assert everything(uri).equals(content)


def test_an_overwritten_table_is_a_final_conflict(tmp_path):
    uri = write(tmp_path / "t")
    base = opened(uri)
    rewritten = rewrite(base)
    lance.write_dataset(rows_of(10), uri, mode="overwrite")
    for commit in COMMITS:
        with pytest.raises(CommitConflict):
            commit(base, rewritten)
        with pytest.raises(CommitConflict, match="changed, deleted or compacted"):
            commit(base.latest(), rewritten)


class TestDiscard:
    def test_it_removes_what_was_written(self, tmp_path):
        uri = write(tmp_path / "t")
        base, content = opened(uri), everything(uri)
        files = sorted(base.store.list("data"))
        rewritten = rewrite(base)
        assert sorted(base.store.list("data")) != files
        for group in rewritten:
            discard(base.store, group)
            discard(base.store, group)
        assert sorted(base.store.list("data")) == files
        assert everything(uri).equals(content)

    def test_it_leaves_what_was_committed(self, tmp_path):
        uri = write(tmp_path / "t")
        base, content = opened(uri), everything(uri)
        rewritten = rewrite(base)
        commit_dropping(base, rewritten)
        for group in rewritten:
            discard(base.store, group)
        assert everything(uri).equals(content)


class TestCleanUp:
    def test_old_versions_and_their_files_go(self, tmp_path):
        uri = write(tmp_path / "t")
        content = everything(uri)
        committed = commit_dropping(opened(uri), rewrite(opened(uri)))
        lance.dataset(uri).tags.create("kept", 1)
        kept = clean_up(committed, 3600)
        assert (kept.versions, kept.bytes) == (0, 0)
        cleaned = clean_up(committed, 0)
        assert cleaned.versions == committed.version - 2
        assert cleaned.bytes > 0
        assert {v["version"] for v in lance.dataset(uri).versions()} == {1, committed.version}
        assert everything(uri).equals(content)

    def test_orphans_are_what_no_version_names(self, tmp_path):
        uri = write(tmp_path / "t")
        old_index = opened(uri).manifest.user_segments[0]
        lance.dataset(uri).create_branch("side")
        lance.dataset(uri).drop_index("by_v")
        snapshot = opened(uri)
        crashed, running, odd = str(uuid4()), str(uuid4()), "notes"
        for name in (crashed, running, odd):
            snapshot.store.write(f"_indices/{name}/page_data.lance", b"x")
        week_ago = time.time() - 8 * 86_400
        for path in (tmp_path / "t/_indices" / crashed / "page_data.lance", tmp_path / "t/_indices" / crashed):
            os.utime(path, (week_ago, week_ago))
        found = {o.path: o.age for o in orphans(snapshot)}
        assert set(found) == {f"_indices/{crashed}", f"_indices/{running}"}
        assert (found[f"_indices/{crashed}"] or 0) > 7 * 86_400 > 60 > (found[f"_indices/{running}"] or 0)
        assert [o.path for o in delete_orphans(snapshot).deleted] == [f"_indices/{crashed}"]
        assert not (tmp_path / "t/_indices" / crashed).exists()
        assert (tmp_path / "t/_indices" / running).exists()

        # The branch still has the index, whatever becomes of the versions of the table itself.
        clean_up(snapshot, 0)
        assert old_index.directory not in {o.path for o in orphans(snapshot.latest())}
