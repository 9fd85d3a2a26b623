"""A merged segment holds exactly the live rows its sources answer for, and stock uses it like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import FrozenBitMap

import pennon
from pennon.engine import Engine, LocalEngine, SparkEngine
from pennon.errors import BuildFailed, DamagedFile
from pennon.format.commit import commit_segments
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.format.segment_contents import CONTENTS_FILE
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, Store
from pennon.index.btree.guard_rows import SENTINEL_ID
from pennon.index.btree.kind import BTREE
from pennon.index.btree.options import BTree
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.value_order import fixed_keys
from pennon.jobs.btree import merge as merge_btree_module
from pennon.jobs.btree import plan_merge as merging
from pennon.jobs.btree.build import build_btree
from pennon.jobs.btree.merge import merge_btree
from pennon.jobs.btree.plan import MERGE_COPIES, plan_btree
from pennon.jobs.btree.plan_merge import BTreeMerge, plan_btree_merge
from pennon.jobs.shared.changes import SegmentChange
from pennon.jobs.shared.commit import commit_change
from pennon.jobs.shared.remap import MergeSource, RemapPlan
from tests.support.btree_files import write_version_zero_tree
from tests.support.tables import FILTERS, every_type, full_scan, stock_answer, write_every_type

ROW_BYTES = 16


local = LocalEngine(threads=1)


def build(uri: str, column: str, fragments: list[int] | None = None, **options: Any) -> None:
    """A segment over some fragments, beside the others of its index."""
    snapshot = Snapshot.open(Location.of(uri))
    plan = plan_btree(
        snapshot, column, BTree(**{"batch_size": 16} | options), fragment_ids=fragments, memory_bytes=1 << 30
    )
    segment = build_btree(local, snapshot, plan)
    commit_change(snapshot, SegmentChange((segment,)))


def segments_of(snapshot: Snapshot, column: str) -> list[IndexSegment]:
    return [s for s in snapshot.manifest.user_segments if s.fields == (snapshot.column(column).field_id,)]


def carry_all(snapshot: Snapshot, segments: Sequence[IndexSegment]) -> RemapPlan:
    reuse = read_fragment_reuse(snapshot)
    sources = tuple(MergeSource(s, FrozenBitMap(effective_coverage(s, snapshot, reuse))) for s in segments)
    stable = snapshot.manifest.has_stable_row_ids
    return RemapPlan(snapshot.pin(), BTREE.stores_addresses(segments[0].index_version, stable), sources)


def plan(
    snapshot: Snapshot,
    column: str,
    segments: Sequence[IndexSegment],
    most_rows: int = 1 << 24,
    may_copy: bool = False,
    parallelism: int = 1,
) -> BTreeMerge:
    """A merge whose ranges may have so many rows."""
    return plan_btree_merge(
        snapshot,
        snapshot.column(column),
        carry_all(snapshot, segments),
        name=segments[0].name,
        parallelism=parallelism,
        memory_bytes=most_rows * ROW_BYTES * MERGE_COPIES,
        may_copy=may_copy,
    )


def merge_all(uri: str, column: str, engine: Engine = local, **options: Any) -> IndexSegment:
    """Merge every segment of a column's index and commit the result in their place."""
    snapshot = Snapshot.open(Location.of(uri))
    segments = segments_of(snapshot, column)
    merged = merge_btree(engine, snapshot, plan(snapshot, column, segments, **options))
    commit_change(snapshot, SegmentChange((merged,), tuple(segments)))
    check_rows(uri, column, merged)
    return merged


def pages_of(uri: str, segment: IndexSegment) -> list[pa.Table]:
    """The page files in value order, read without Pennon."""
    from lance.file import LanceFileReader

    lookup = LanceFileReader(f"{uri}/_indices/{segment.uuid}/page_lookup.lance")
    metadata = lookup.metadata().schema.metadata
    names = ["page_data.lance"]
    if metadata[b"range_partitioned"] == b"true":
        import json

        names = [f"part_{p}_page_data.lance" for p, _ in json.loads(metadata[b"page_num_per_range_partition"])]
    assert set(names) | {"page_lookup.lance", CONTENTS_FILE} == {f.path for f in segment.files} or not names
    for file in segment.files:
        assert Path(uri, "_indices", segment.uuid, file.path).stat().st_size == file.size_bytes
    return [LanceFileReader(f"{uri}/_indices/{segment.uuid}/{name}").read_all().to_table() for name in names]


def keyed(values: pa.Array, ids: pa.Array) -> Counter[tuple[Any, int]]:
    """(value, id) pairs that compare to the bit."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    keys = fixed_keys(values.drop_null()) if len(values) else None
    spelled = iter(keys.tolist() if keys is not None else values.drop_null().to_pylist())
    valid = values.is_valid().to_pylist()
    return Counter((next(spelled) if v else None, i) for v, i in zip(valid, ids.to_pylist(), strict=True))


def rows_of(uri: str, segment: IndexSegment) -> Counter[tuple[Any, int]]:
    """All (value, id) pairs of a segment but for guard rows."""
    found: Counter[tuple[Any, int]] = Counter()
    for table in pages_of(uri, segment):
        found += keyed(table.column(0), table.column(1))
    return Counter({pair: n for pair, n in found.items() if pair[1] != int(SENTINEL_ID)})


def scanned_rows(uri: str, column: str, segment: IndexSegment) -> Counter[tuple[Any, int]]:
    """What a segment should hold: the live rows of the fragments it covers."""
    dataset = lance.dataset(uri)
    fragments = [f for f in dataset.get_fragments() if f.fragment_id in segment.fragments]
    if not fragments:
        return Counter()
    table = dataset.scanner(
        columns=[column], fragments=fragments, with_row_address=True, use_scalar_index=False
    ).to_table()
    return keyed(table.column(column), table.column("_rowaddr"))


def check_rows(uri: str, column: str, segment: IndexSegment) -> None:
    assert rows_of(uri, segment) == scanned_rows(uri, column, segment)


def check_answers(uri: str, filters: list[str]) -> None:
    table, dataset = pennon.open(uri), lance.dataset(uri)
    for filter in filters:
        expected = full_scan(dataset, filter)
        stock, used = stock_answer(dataset, filter)
        assert stock == expected, f"stock: {filter}"
        assert used, f"stock does not use the index: {filter}"
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, f"pennon: {filter}"


def write_parts(path: Path, parts: Sequence[Sequence[Any]], type_: pa.DataType | None = None, **options: Any) -> str:
    """A table with one fragment for every part: `k` as given, `id` counting on."""
    uri, start = str(path), 0
    for part in parts:
        table = pa.table({"id": np.arange(start, start + len(part)), "k": pa.array(part, type_ or pa.int64())})
        lance.write_dataset(table, uri, mode="append" if start else "create", **options)
        start += len(part)
    return uri


def fragments_in(uri: str) -> list[int]:
    return [f.fragment_id for f in lance.dataset(uri).get_fragments()]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Six fragments of 500 overlapping values, NULLs among them, and three segments: 2 ranged, 1 plain."""
    rng = np.random.default_rng(0)
    parts = [[None if v % 25 == 0 else int(v) for v in rng.integers(0, 1000, 500)] for _ in range(6)]
    uri = write_parts(tmp_path / "t.lance", parts)
    build(uri, "k", [0, 1, 2], ranges=5)
    build(uri, "k", [3, 4], ranges=2)
    build(uri, "k", [5])
    return uri


KS = ["k = 7", "k < 100", "k >= 900", "k is null", "k is not null", "k between 300 and 400", "k in (1, 500, 999)"]


def test_a_small_merge_is_one_task_and_plain(uri: str) -> None:
    merged = merge_all(uri, "k")
    assert [f.path for f in merged.files] == ["page_data.lance", "page_lookup.lance", CONTENTS_FILE]
    assert set(merged.fragments) == set(range(6))
    assert merged.index_version == 0
    check_answers(uri, KS)


@pytest.mark.parametrize("most_rows", [100, 400, 1000])
def test_a_large_merge_is_cut_into_ranges(uri: str, most_rows: int) -> None:
    merged = merge_all(uri, "k", most_rows=most_rows)
    pages = pages_of(uri, merged)
    assert len(pages) >= 2500 // most_rows
    assert max(len(page) for page in pages) <= most_rows * 1.5 + 3 * 16
    assert all(page.column(1)[0].as_py() == int(SENTINEL_ID) for page in pages)
    check_answers(uri, KS)


def test_there_are_ranges_for_every_core(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "ROWS_PER_TASK", 300)
    merged = merge_all(uri, "k", parallelism=4)
    sizes = [len(page) for page in pages_of(uri, merged)]
    assert len(sizes) >= 10
    assert max(sizes) <= 375 + 3 * 16
    check_answers(uri, KS)


def test_spark_merges_like_anyone(uri: str, engine: SparkEngine) -> None:
    merge_all(uri, "k", engine, most_rows=400)
    check_answers(uri, KS)
    merge_all(uri, "k", engine)
    check_answers(uri, KS)


@pytest.mark.parametrize("most_rows", [150, 1 << 24])
@pytest.mark.parametrize(
    "column", ["i64", "f64", "f32", "text", "ts_ns", "flag", "wide", "raw", "money", "nothing", "u64"]
)
def test_every_type_with_deletions(column: str, most_rows: int, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=1500, rows_per_file=300)
    fragments = fragments_in(uri)
    build(uri, column, fragments[:2], batch_size=64, ranges=3)
    build(uri, column, fragments[2:3], batch_size=32)
    build(uri, column, fragments[3:], batch_size=64)
    lance.dataset(uri).delete("id % 11 = 3")
    merge_all(uri, column, most_rows=most_rows)
    check_answers(uri, [f for f in FILTERS[column] if "null)" not in f and "not true" not in f and "%1" not in f][:6])


@pytest.mark.parametrize("count", range(1, 10))
def test_any_number_of_sources(count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(count)
    uri = write_parts(tmp_path / "t.lance", [rng.integers(0, 300, 100 * (i + 1)).tolist() for i in range(count)])
    for fragment in range(count):
        build(uri, "k", [fragment], ranges=fragment % 3 + 1)
    merge_all(uri, "k", most_rows=250)
    check_answers(uri, ["k = 7", "k < 100", "k >= 290"])


def test_stock_segments_are_merged(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=9000, rows_per_file=9000)
    lance.dataset(uri).create_scalar_index("i64", "BTREE", name="i64_idx")
    for seed in range(3):
        lance.write_dataset(every_type(5000, seed, 10_000 * (seed + 1)), uri, mode="append")
        lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(segments_of(Snapshot.open(Location.of(uri)), "i64")) == 4
    merged = merge_all(uri, "i64", most_rows=9000)
    assert len(pages_of(uri, merged)) >= 3
    check_answers(uri, FILTERS["i64"][:5])
    merge_all(uri, "i64")
    check_answers(uri, FILTERS["i64"][:5])


def test_disjoint_deltas(tmp_path: Path) -> None:
    """Deltas in time order: what lies beyond the largest source is spread over ranges of its own."""
    uri = write_parts(tmp_path / "t.lance", [list(range(i * 1000, i * 1000 + 400)) for i in range(6)])
    for fragment in (2, 0, 5, 1, 4, 3):
        build(uri, "k", [fragment], ranges=2 if fragment == 2 else 1)
    merged = merge_all(uri, "k", most_rows=300)
    assert max(len(page) for page in pages_of(uri, merged)) <= 450
    check_answers(uri, ["k = 7", "k < 1100", "k >= 5100"])


@pytest.mark.parametrize("hot", [5, None])
def test_one_value_fills_several_ranges(hot: int | None, tmp_path: Path) -> None:
    parts = [[hot] * 900 + list(range(100)), [hot] * 900 + list(range(100)), [hot] * 50 + list(range(20))]
    uri = write_parts(tmp_path / "t.lance", parts)
    build(uri, "k", [0], ranges=4)
    build(uri, "k", [1])
    build(uri, "k", [2])
    merged = merge_all(uri, "k", most_rows=300)
    sizes = [len(page) for page in pages_of(uri, merged)]
    assert len(sizes) >= 7
    assert max(sizes) <= 450
    check_answers(uri, ["k = 5", "k < 5", "k > 5", "k is null"])
    # What is cut inside a value once can be cut there again.
    assert max(len(page) for page in pages_of(uri, merge_all(uri, "k", most_rows=150))) <= 225


def test_one_source_far_larger_than_the_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 10**6, 20_000).tolist(), *(rng.integers(0, 10**6, 5).tolist() for _ in range(30))]
    uri = write_parts(tmp_path / "t.lance", parts)
    build(uri, "k", [0], batch_size=64)
    for fragment in range(1, 31):
        build(uri, "k", [fragment], batch_size=1024)
    merged = merge_all(uri, "k", most_rows=2000)
    assert max(len(page) for page in pages_of(uri, merged)) <= 3000
    check_answers(uri, ["k < 1000", "k >= 990000"])


def test_pruned_fragments_are_left_out(uri: str) -> None:
    """An in-place update takes fragments out of the coverage; their old values must not come back."""
    snapshot = Snapshot.open(Location.of(uri))
    fragment = lance.dataset(uri).get_fragment(1)
    assert fragment is not None
    new = fragment.scanner(columns=["id"], with_row_id=True).to_table()
    new = pa.table({"_rowid": new["_rowid"], "k": pa.array([7] * 500, pa.int64())})
    updated, fields = fragment.update_columns(new)
    operation = lance.LanceOperation.Update(updated_fragments=[updated], fields_modified=fields)
    lance.LanceDataset.commit(uri, operation, read_version=snapshot.version)
    after = Snapshot.open(Location.of(uri))
    assert 1 not in carry_all(after, segments_of(after, "k")).coverage
    merged = merge_all(uri, "k", most_rows=400)
    assert set(merged.fragments) == {0, 2, 3, 4, 5}
    check_answers(uri, KS)


def test_rows_moved_by_deferred_compaction(uri: str) -> None:
    lance.dataset(uri).delete("id % 7 = 2")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1200, defer_index_remap=True)
    assert read_fragment_reuse(Snapshot.open(Location.of(uri))) is not None
    lance.dataset(uri).delete("id % 7 = 3")
    merged = merge_all(uri, "k", most_rows=400)
    assert max(merged.fragments) > 5
    check_answers(uri, KS)


def test_rows_of_a_compaction_under_way(uri: str) -> None:
    """Files can be made ready for fragments that are not committed yet."""
    lance.dataset(uri).delete("id % 7 = 2")
    before = Snapshot.open(Location.of(uri))
    segments = segments_of(before, "k")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1200, defer_index_remap=True)
    after = Snapshot.open(Location.of(uri))
    reuse = read_fragment_reuse(after)
    assert reuse is not None
    before.store.write("_indices/job/moves", reuse.content.SerializeToString())
    sources = tuple(MergeSource(s, FrozenBitMap(effective_coverage(s, after, reuse))) for s in segments)
    remap_plan = RemapPlan(before.pin(), True, sources, address_map="_indices/job/moves")
    merged = merge_btree(local, before, replace(plan(before, "k", segments, most_rows=400), remap_plan=remap_plan))
    assert set(merged.fragments) == set(after.manifest.live)
    assert not before.manifest.live & after.manifest.live
    check_rows(uri, "k", merged)


def test_a_single_source_is_remapped(tmp_path: Path) -> None:
    uri = write_parts(tmp_path / "t.lance", [list(range(i, 400 + i)) for i in range(3)])
    build(uri, "k", ranges=3)
    lance.dataset(uri).delete("k % 3 = 1")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000, defer_index_remap=True)
    merged = merge_all(uri, "k", most_rows=300)
    assert len(pages_of(uri, merged)) >= 3
    check_answers(uri, ["k = 9", "k < 100", "k >= 390"])


@pytest.mark.parametrize("ranges", [1, 4])
@pytest.mark.parametrize("most_rows", [100, 1 << 24])
def test_nothing_survives(ranges: int, most_rows: int, tmp_path: Path) -> None:
    """A segment that no longer answers for anything becomes an empty tree, and stock opens it beside others."""
    uri = write_parts(tmp_path / "t.lance", [list(range(500)), list(range(1000, 1300))])
    build(uri, "k", [0], ranges=ranges)
    build(uri, "k", [1])
    snapshot = Snapshot.open(Location.of(uri))
    emptied, other = segments_of(snapshot, "k")
    sources = (MergeSource(emptied, FrozenBitMap()),)
    planned = plan(snapshot, "k", [emptied], most_rows)
    planned = replace(planned, remap_plan=replace(planned.remap_plan, sources=sources))
    merged = merge_btree(local, snapshot, planned)
    assert not merged.fragments
    assert not rows_of(uri, merged)
    commit_change(snapshot, SegmentChange((merged,), (emptied,)))
    assert {s.uuid for s in segments_of(Snapshot.open(Location.of(uri)), "k")} == {merged.uuid, other.uuid}
    check_answers(uri, ["k = 0", "k < 1100"])
    lance.dataset(uri).prewarm_index("k_idx")
    merge_all(uri, "k", most_rows=most_rows)
    check_answers(uri, ["k = 0", "k < 1100"])


def test_stable_row_ids_are_indexed_by_address(tmp_path: Path) -> None:
    uri = write_parts(tmp_path / "t.lance", [list(range(400)), list(range(200, 600))], enable_stable_row_ids=True)
    build(uri, "k", [0], ranges=3)
    build(uri, "k", [1])
    lance.dataset(uri).delete("k % 5 = 0")
    lance.dataset(uri).update({"k": "k + 1000"}, where="k % 7 = 1")
    merged = merge_all(uri, "k", most_rows=200)
    assert merged.index_version == 1
    check_answers(uri, ["k = 9", "k < 100", "k >= 590"])


def test_stable_ids_of_version_zero_stay_ids(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", enable_stable_row_ids=True)
    write_version_zero_tree(uri, "i64")
    lance.dataset(uri).delete("id % 5 = 1")
    snapshot = Snapshot.open(Location.of(uri))
    [segment] = segments_of(snapshot, "i64")
    merged = merge_btree(local, snapshot, plan(snapshot, "i64", [segment], most_rows=800))
    assert merged.index_version == 0
    table = snapshot.dataset.scanner(columns=["i64"], with_row_id=True).to_table()
    assert rows_of(uri, merged) == keyed(table["i64"], table["_rowid"])
    commit_segments(snapshot, [merged], [segment])
    for filter in FILTERS["i64"][:6]:
        assert stock_answer(uri, filter)[0] == full_scan(uri, filter)


class TestCopying:
    """Where files are right as they are, a range that is one page file and nothing else is copied."""

    @pytest.fixture
    def uri(self, tmp_path: Path) -> str:
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), [*range(500, 520)], [*range(5000, 5600)]])
        build(uri, "k", [0], ranges=8)
        build(uri, "k", [1])
        return uri

    @pytest.fixture
    def copied(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
        """Which files were copied to where; a range written anew can have the very same bytes."""
        copied: list[tuple[Path, Path]] = []
        copy = Store.copy

        def recording(store: Store, source: str, target: str) -> int:
            copied.append((Path(store.location.uri, source), Path(store.location.uri, target)))
            return copy(store, source, target)

        monkeypatch.setattr(Store, "copy", recording)
        return copied

    def test_untouched_ranges_are_copied_byte_for_byte(self, uri: str, copied: list[tuple[Path, Path]]) -> None:
        counter = ReadCounter()
        with counting_reads(counter):
            merged = merge_all(uri, "k", may_copy=True)
        assert len(pages_of(uri, merged)) == 8
        assert len(copied) == 7
        assert all(source.read_bytes() == target.read_bytes() for source, target in copied)
        # Two lookups of 104 and 2 pages, the touched range and the delta; of the others one row each.
        assert counter.rows <= 104 + 2 + 201 + 20 + 7
        check_answers(uri, ["k = 7", "k = 510", "k < 510", "k >= 1590"])

    def test_the_plan_tells_what_is_copied(self, uri: str) -> None:
        snapshot = Snapshot.open(Location.of(uri))
        planned = plan(snapshot, "k", segments_of(snapshot, "k"), may_copy=True)
        assert (len(planned.ranges), planned.copied_ranges) == (8, 7)
        assert planned.rows >= 1620
        assert planned.task_memory_bytes < 400 * ROW_BYTES * MERGE_COPIES
        assert not plan(snapshot, "k", segments_of(snapshot, "k")).copied_ranges

    def test_nothing_is_copied_unasked(self, uri: str, copied: list[tuple[Path, Path]]) -> None:
        merge_all(uri, "k", most_rows=250)
        assert not copied

    def test_a_page_without_rows_in_a_range_does_not_touch_it(
        self, tmp_path: Path, copied: list[tuple[Path, Path]]
    ) -> None:
        """One page of a delta may reach over many ranges; only those where it has rows are rewritten."""
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), [3, 700, 701, 1599]])
        build(uri, "k", [0], ranges=8)
        build(uri, "k", [1])
        merged = merge_all(uri, "k", may_copy=True, most_rows=250)
        assert (len(copied), len(pages_of(uri, merged))) == (5, 8)
        check_answers(uri, ["k = 3", "k = 700", "k = 1599", "k < 510"])

    def test_large_files_are_copied_too(
        self, tmp_path: Path, copied: list[tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More and smaller ranges would serve the cores better, but a copy is cheaper still."""
        monkeypatch.setattr(merging, "ROWS_PER_TASK", 50)
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), [3, 700, 701, 1599]])
        build(uri, "k", [0], ranges=8)
        build(uri, "k", [1])
        merged = merge_all(uri, "k", may_copy=True, parallelism=4)
        assert len(copied) == 5
        assert len(pages_of(uri, merged)) > 8

    def test_rows_that_are_not_carried_do_not_touch_a_range(
        self, tmp_path: Path, copied: list[tuple[Path, Path]]
    ) -> None:
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), [3, 700, 701, 1599]])
        build(uri, "k", [0], ranges=8)
        build(uri, "k", [1])
        lance.dataset(uri).delete("id in (1601, 1602)")
        merge_all(uri, "k", may_copy=True, most_rows=250)
        assert len(copied) == 6

    def test_files_of_every_source_are_copied(self, uri: str, copied: list[tuple[Path, Path]]) -> None:
        build(uri, "k", [2], ranges=3)
        merged = merge_all(uri, "k", may_copy=True, most_rows=400)
        assert (len(copied), len(pages_of(uri, merged))) == (10, 11)
        check_answers(uri, ["k = 510", "k >= 1590", "k = 5300"])

    def test_files_that_overlap_do_not_cut_ranges(self, tmp_path: Path, copied: list[tuple[Path, Path]]) -> None:
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), list(range(0, 1600, 2))])
        build(uri, "k", [0], ranges=4)
        build(uri, "k", [1], ranges=3)
        merged = merge_all(uri, "k", may_copy=True, most_rows=1000)
        assert (len(copied), len(pages_of(uri, merged))) == (0, 4)

    def test_rows_that_are_gone_stay_in_copies(self, uri: str, copied: list[tuple[Path, Path]]) -> None:
        lance.dataset(uri).delete("k < 50")
        snapshot = Snapshot.open(Location.of(uri))
        segments = segments_of(snapshot, "k")
        merged = merge_btree(local, snapshot, plan(snapshot, "k", segments, may_copy=True))
        assert len(copied) == 7
        commit_change(snapshot, SegmentChange((merged,), tuple(segments)))
        check_answers(uri, ["k < 60", "k = 510"])

    def test_pages_of_another_size_are_not_copied(self, uri: str, copied: list[tuple[Path, Path]]) -> None:
        build(uri, "k", [2], ranges=3, batch_size=32)
        merge_all(uri, "k", may_copy=True, most_rows=400)
        assert len(copied) == 7

    def test_files_without_guard_rows_are_not_copied(
        self, tmp_path: Path, copied: list[tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), [*range(500, 520)]])
        with monkeypatch.context() as patched:
            patched.setattr("pennon.jobs.btree.build.guard", lambda runs: runs)
            patched.setattr("pennon.jobs.btree.build.GUARD_ROWS", 0)
            build(uri, "k", [0], ranges=8)
        build(uri, "k", [1])
        merged = merge_all(uri, "k", may_copy=True)
        assert not copied
        assert all(page.column(1)[0].as_py() == int(SENTINEL_ID) for page in pages_of(uri, merged))

    def test_more_than_memory_holds_is_split_and_not_copied(
        self, tmp_path: Path, copied: list[tuple[Path, Path]]
    ) -> None:
        """Whether another source has rows in a range shows only when it is read, so that it must fit anyway."""
        uri = write_parts(tmp_path / "t.lance", [list(range(1600)), [3, 700, 701, 1599]])
        build(uri, "k", [0], ranges=8)
        build(uri, "k", [1])
        merged = merge_all(uri, "k", may_copy=True, most_rows=100)
        assert not copied
        assert max(len(page) for page in pages_of(uri, merged)) <= 150


def test_ranges_without_rows_vanish(tmp_path: Path) -> None:
    uri = write_parts(tmp_path / "t.lance", [list(range(1600))])
    build(uri, "k", ranges=8)
    lance.dataset(uri).delete("k >= 200 and k < 1400")
    merged = merge_all(uri, "k", most_rows=220)
    assert [len(page) for page in pages_of(uri, merged)] == [201, 201]
    check_answers(uri, ["k = 7", "k = 510", "k >= 1390"])
    lance.dataset(uri).prewarm_index("k_idx")


def test_what_few_rows_are_left_is_plain(uri: str) -> None:
    lance.dataset(uri).delete("id % 100 > 0")
    merged = merge_all(uri, "k", most_rows=50)
    assert [len(page) for page in pages_of(uri, merged)] == [30]
    assert merged.files[0].path == "page_data.lance"
    check_answers(uri, KS)


@pytest.mark.parametrize("stable", [False, True])
def test_stock_maintains_what_was_merged(stable: bool, tmp_path: Path) -> None:
    """A range that loses all its rows breaks stock, unless it has a guard row."""
    parts = [[*range(800), *[None] * 50], list(range(0, 1200, 2))]
    uri = write_parts(tmp_path / "t.lance", parts, enable_stable_row_ids=stable)
    build(uri, "k", [0], ranges=4)
    build(uri, "k", [1])
    merge_all(uri, "k", most_rows=300)
    lance.dataset(uri).delete("k between 100 and 700 or k is null")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)
    filters = ["k = 90", "k < 300", "k >= 690", "k is null"]
    check_answers(uri, filters)
    lance.write_dataset(pa.table({"id": range(9000, 9400), "k": range(400)}), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    check_answers(uri, filters)
    merge_all(uri, "k", most_rows=200)
    check_answers(uri, filters)
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    check_answers(uri, filters)


def test_small_neighbors_are_joined(tmp_path: Path) -> None:
    uri = write_parts(tmp_path / "t.lance", [list(range(1600)), list(range(0, 1600, 10))])
    build(uri, "k", [0], ranges=50)
    build(uri, "k", [1])
    merged = merge_all(uri, "k", most_rows=1000)
    assert len(pages_of(uri, merged)) <= 16
    check_answers(uri, ["k = 7", "k < 510", "k >= 1590"])


def test_many_small_deltas_are_opened_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    parts = [rng.integers(0, 10**6, 8000).tolist(), *(rng.integers(0, 10**6, 10).tolist() for _ in range(20))]
    uri = write_parts(tmp_path / "t.lance", parts)
    build(uri, "k", [0], ranges=10)
    for fragment in range(1, 21):
        build(uri, "k", [fragment])
    counter = ReadCounter()
    with counting_reads(counter):
        merge_all(uri, "k", most_rows=1000)
    # Of each delta its lookup and its pages; of the largest source its lookup and ten files, which ranges end with.
    assert counter.files == 20 * 2 + 1 + 10
    assert counter.reads == counter.files


@pytest.mark.parametrize("order", [[(0, 1), (2,)], [(1, 2), (0,)], [(0, 2), (1,)]])
def test_merges_of_merges_agree(order: list[tuple[int, ...]], uri: str) -> None:
    snapshot = Snapshot.open(Location.of(uri))
    segments = segments_of(snapshot, "k")
    at_once = merge_btree(local, snapshot, plan(snapshot, "k", segments, most_rows=700))
    first, rest = order
    partly = merge_btree(local, snapshot, plan(snapshot, "k", [segments[i] for i in first], most_rows=300))
    remaining = [partly, *(segments[i] for i in rest)]
    again = merge_btree(local, snapshot, plan(snapshot, "k", remaining, most_rows=500, may_copy=True))
    assert rows_of(uri, again) == rows_of(uri, at_once) == scanned_rows(uri, "k", again)


def test_rows_lost_on_the_way_are_noticed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(runs: Any) -> Iterator[Any]:
        yield from list(runs)[1:]

    snapshot = Snapshot.open(Location.of(uri))
    planned = plan(snapshot, "k", segments_of(snapshot, "k"), most_rows=400)
    directories = set(Path(uri, "_indices").iterdir())
    monkeypatch.setattr(merge_btree_module, "merge_runs", forgetful)
    with pytest.raises(BuildFailed, match="rows of the segments"):
        merge_btree(local, snapshot, planned)
    assert set(Path(uri, "_indices").iterdir()) == directories


def test_damaged_sources_are_named(uri: str) -> None:
    snapshot = Snapshot.open(Location.of(uri))
    segments = segments_of(snapshot, "k")
    directory = Path(uri, "_indices", segments[0].uuid)
    directories = set(Path(uri, "_indices").iterdir())
    victim, other = sorted(directory.glob("part_*"))[:2]
    victim.write_bytes(other.read_bytes())
    with pytest.raises(DamagedFile, match=r"part_\d+"):
        merge_btree(local, snapshot, plan(snapshot, "k", segments))
    assert set(Path(uri, "_indices").iterdir()) == directories


VALUES = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**40), 2**40))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), float("inf")]), st.floats(width=64))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_segments_merge(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever the values, layouts, page sizes and cuts: the result is what a scan finds, in order."""
    elements, type_ = data.draw(
        st.sampled_from([(VALUES, pa.int64()), (FLOATS, pa.float64()), (st.text("ab\0é", max_size=3), pa.string())])
    )
    parts = data.draw(st.lists(st.lists(elements, min_size=1, max_size=60), min_size=1, max_size=4))
    parts = [part * data.draw(st.integers(1, 4)) for part in parts]
    uri = write_parts(tmp_path_factory.mktemp("any") / "t.lance", parts, type_)
    for fragment in range(len(parts)):
        batch_size, ranges = data.draw(st.sampled_from([1, 4, 7, 16])), data.draw(st.integers(1, 4))
        build(uri, "k", [fragment], batch_size=batch_size, ranges=ranges)
    if data.draw(st.booleans()):
        lance.dataset(uri).delete(f"id % 3 = {data.draw(st.integers(0, 2))}")
    most = data.draw(st.sampled_from([5, 20, 80, 10_000]))
    snapshot = Snapshot.open(Location.of(uri))
    may_copy = data.draw(st.booleans()) and not snapshot.deleted_addresses(snapshot.manifest.live).size
    parallelism = data.draw(st.integers(1, 3))
    segments = segments_of(snapshot, "k")
    planned = plan(snapshot, "k", segments, most_rows=most, may_copy=may_copy, parallelism=parallelism)
    for low, high in pairwise(planned.ranges):
        for number in low.stretches.keys() & high.stretches.keys():
            assert low.stretches[number].stop.middle <= high.stretches[number].start.middle
    merged = merge_btree(local, snapshot, planned)
    assert rows_of(uri, merged) == scanned_rows(uri, "k", merged)
    again = merge_btree(local, snapshot, plan(snapshot, "k", [merged], most_rows=10_000))
    assert rows_of(uri, again) == rows_of(uri, merged)
