"""Inverted indices through their whole life: pylance finds in them what it finds in an index of its own, built anew on
a copy of the table, with equal scores."""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

import pennon
from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import ByteCache
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.kind import INVERTED
from pennon.jobs.inverted.build import build_slice
from pennon.jobs.inverted.jobs import InvertedJobs
from pennon.jobs.inverted.plan import plan_inverted
from pennon.jobs.kinds import MergeRequest, PlanContext
from pennon.jobs.shared.remap import MergeSource
from pennon.testing.engines import InProcess
from tests.index.inverted.corpus import COLUMN, NAME, commit, documents, pylance_search, segments, vocabulary

pytestmark = pytest.mark.usefixtures("process_engine")

OPTIONS: dict[str, Any] = {"with_position": True}
OPTIONS_PARAMS = TextParams(with_position=True)
ROWS, FRAGMENT = 600, 100
TEXTS = documents(1000, seed=3, words=300)
WORDS = vocabulary(3, 300)


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count), COLUMN: pa.array(TEXTS[start : start + count], pa.string())})


@pytest.fixture(params=[False, True], ids=["plain", "stable"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = write(tmp_path, stable=request.param)
    lance.dataset(path).delete("id % 7 = 3 and id < 400")
    return path


def write(directory: Path, *, stable: bool = False) -> str:
    path = str(directory / "t.lance")
    lance.write_dataset(rows(0, ROWS), path, max_rows_per_file=FRAGMENT, enable_stable_row_ids=stable)
    return path


def build(uri: str, fragments: list[int] | None = None, **options: Any) -> None:
    pennon.open(uri).create_index(COLUMN, "INVERTED", fragment_ids=fragments, **{**OPTIONS, **options})


def queries(count: int = 25, *, phrases: bool = True) -> list[str]:
    draw = random.Random(count)
    found = [" ".join(draw.choices(WORDS, k=draw.randint(1, 3))) for _ in range(count)]
    texts = [text.split() for text in TEXTS[:ROWS] if text and " " in text]
    return [*found, *(f'"{" ".join(draw.choice(texts)[:2])}"' for _ in range(5 * phrases))]


def check(uri: str, *, scores: bool = True, phrases: bool = True, **options: Any) -> None:
    """As in an index that pylance builds on the live rows. Dead documents count in scores, where there are some."""
    with tempfile.TemporaryDirectory() as directory:
        copy = f"{directory}/copy.lance"
        shutil.copytree(uri, copy)
        theirs, own = lance.dataset(copy), lance.dataset(uri)
        theirs.create_scalar_index(COLUMN, "INVERTED", name=NAME, replace=True, **{**OPTIONS, **options})
        found = 0
        for query in queries(phrases=phrases):
            expected, ours = pylance_search(theirs, query), pylance_search(own, query)
            assert set(ours) == set(expected), query
            assert set(pylance_search(own, query, fast_search=True)) == set(expected), query
            best, wanted = pylance_search(own, query, limit=10), pylance_search(theirs, query, limit=10)
            assert len(best) == len(wanted), query
            if scores:
                assert ours == pytest.approx(expected, rel=1e-5), query
                assert list(best.values()) == pytest.approx(list(wanted.values()), rel=1e-5), query
            found += len(expected)
        assert found > 100
    report = pennon.open(uri).audit()
    assert report.ok, report


def stored_rows(uri: str) -> int:
    snapshot = Snapshot.open(Location.of(uri))
    opened = pennon.open(uri)
    assert [index.coverage for index in opened.indices() if index.name == NAME] == [1.0]
    return sum(
        len(ids)
        for segment in segments(uri)
        for ids in INVERTED.open(snapshot, segment, snapshot.column(COLUMN), None, ByteCache(0)).stored_ids()
    )


def live_documents(uri: str) -> int:
    """Rows with a term, as pylance indexes them."""
    with tempfile.TemporaryDirectory() as directory:
        copy = f"{directory}/copy.lance"
        shutil.copytree(uri, copy)
        lance.dataset(copy).create_scalar_index(COLUMN, "INVERTED", name=NAME, replace=True, **OPTIONS)
        return stored_rows(copy)


@pytest.mark.parametrize("rows_per_task", [None, 150])
def test_one_segment(uri: str, rows_per_task: int | None) -> None:
    build(uri, rows_per_task=rows_per_task)
    check(uri)
    [index] = pennon.open(uri).indices()
    assert (index.type, index.coverage) == ("INVERTED", 1.0)
    [segment] = segments(uri)
    parts = [name for name in segment.file_sizes if name.endswith("_invert.lance")]
    assert len(parts) == (1 if rows_per_task is None else 4)
    pennon.open(uri).drop_index(NAME)
    assert not pennon.open(uri).indices()


def test_deltas_and_their_merge(uri: str) -> None:
    for fragments in ([0, 1], [2, 3], [4, 5]):
        build(uri, fragments)
    check(uri)
    lance.write_dataset(rows(ROWS, 130), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    assert len(segments(uri)) == 4
    check(uri)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    [segment] = segments(uri)
    assert len([name for name in segment.file_sizes if name.endswith("_invert.lance")]) == 1
    check(uri)


def test_a_merge_drops_dead_documents(uri: str) -> None:
    build(uri, [0, 1, 2])
    build(uri, [3, 4, 5])
    lance.dataset(uri).delete("id % 3 = 1")
    check(uri, scores=False)
    lance.write_dataset(rows(ROWS, 100), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert len(segments(uri)) == 1
    assert stored_rows(uri) == live_documents(uri)
    check(uri)


@pytest.mark.parametrize("remap", ["immediate", "deferred", "drop"])
def test_compactions(uri: str, remap: str) -> None:
    build(uri, [0, 1, 2, 3])
    build(uri, [4, 5])
    stable = Snapshot.open(Location.of(uri)).manifest.has_stable_row_ids
    if remap == "deferred" and stable:
        pytest.skip("Lance has no deferred compaction on stable row ids")
    for target in (250, 1000):
        lance.dataset(uri).delete(f"id % 10 = {target % 7} and id > 100")
        pennon.open(uri).compact(target_rows_per_fragment=target, remap=remap)
        report = pennon.open(uri).audit()
        assert report.ok, report
        if remap == "drop" or stable:
            pennon.open(uri).optimize_indices()
        # Few dead documents stay where a remap does not write posting lists again, and count in scores.
        check(uri, scores=stable and remap == "immediate" and target == 250)
    if remap == "deferred":
        pennon.open(uri).catch_up_indices()
        assert pennon.open(uri).trim_fragment_reuse().versions_removed == 2
    lance.write_dataset(rows(ROWS, 50), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert stored_rows(uri) == live_documents(uri)
    check(uri)


@pytest.mark.parametrize("dead", ["few", "many"])
@pytest.mark.parametrize("remap", ["immediate", "deferred"])
def test_a_remap_writes_posting_lists_again_where_many_documents_are_dead(
    tmp_path: Path, dead: str, remap: str
) -> None:
    uri = write(tmp_path)
    build(uri)
    lists, fragments = digest_of_lists(uri), Snapshot.open(Location.of(uri)).manifest.live
    lance.dataset(uri).delete("id % 10 = 4" if dead == "few" else "id % 3 = 1")
    before = pylance_search(uri, WORDS[0])
    ids = ids_of_rows(uri)
    pennon.open(uri).compact(target_rows_per_fragment=1000, remap=remap)
    if remap == "deferred":
        pennon.open(uri).catch_up_indices()
    [segment] = segments(uri)
    metadata = INVERTED.metadata_of(Snapshot.open(Location.of(uri)), segment)
    assert metadata.deleted_fragments == (FrozenBitMap(fragments) if dead == "few" else FrozenBitMap())
    assert (digest_of_lists(uri) == lists) == (dead == "few")
    check(uri, scores=dead == "many")
    if dead == "few":
        after, today = pylance_search(uri, WORDS[0]), ids_of_rows(uri)
        assert {today[row]: score for row, score in after.items()} == pytest.approx(
            {ids[row]: score for row, score in before.items()}, rel=1e-5
        )
    # What has been masked is dropped by the next merge, whoever does it.
    lance.write_dataset(rows(ROWS, 50), uri, mode="append")
    if remap == "immediate":
        lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    else:
        pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert stored_rows(uri) == live_documents(uri)
    assert not INVERTED.metadata_of(Snapshot.open(Location.of(uri)), segments(uri)[0]).deleted_fragments


def digest_of_lists(uri: str) -> list[str]:
    names = [f"{segment.directory}/{name}" for segment in segments(uri) for name in segment.file_sizes]
    contents = [Path(uri, name).read_bytes() for name in names if name.endswith(("_invert.lance", "_tokens.lance"))]
    return sorted(hashlib.sha256(content).hexdigest() for content in contents)


def ids_of_rows(uri: str) -> dict[int, int]:
    found = lance.dataset(uri).to_table(columns=["id"], with_row_id=True)
    return dict(zip(found["_rowid"].to_pylist(), found["id"].to_pylist(), strict=True))


def test_documents_of_removed_rows_leave_tables_with_stable_row_ids(tmp_path: Path) -> None:
    """pylance returns too few of the best rows while they are there, whoever built the index."""
    uri = write(tmp_path, stable=True)
    build(uri)
    lance.dataset(uri).delete("id % 3 = 0")
    assert not pennon.open(uri).plan_optimize().due
    lance.dataset(uri).optimize.compact_files()
    step = pennon.open(uri).plan_optimize().steps[0]
    assert "rows that compaction has removed" in step.reason
    pennon.open(uri).optimize_indices()
    check(uri)
    assert not pennon.open(uri).plan_optimize().due


def test_texts_change_in_place_and_by_update(uri: str) -> None:
    build(uri)
    lance.dataset(uri).update({COLUMN: f"concat({COLUMN}, ' {WORDS[0]} {WORDS[5]}')"}, where="id % 5 = 1")
    pennon.open(uri).optimize_indices()
    check(uri, scores=False)
    pennon.open(uri).update_column(COLUMN, f"concat({COLUMN}, ' {WORDS[1]}')", where="id < 150")
    pennon.open(uri).optimize_indices()
    check(uri, scores=False)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert len(segments(uri)) == 1
    check(uri)


def test_pylance_maintains_what_pennon_wrote(uri: str) -> None:
    build(uri, [0, 1, 2])
    build(uri, [3, 4, 5])
    lance.write_dataset(rows(ROWS, 60), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    check(uri)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=300)
    pennon.open(uri).optimize_indices()
    check(uri)


def test_pennon_maintains_what_pylance_wrote(uri: str) -> None:
    lance.dataset(uri).create_scalar_index(COLUMN, "INVERTED", name=NAME, **OPTIONS)
    [details] = {segment.details for segment in segments(uri)}
    lance.write_dataset(rows(ROWS, 60), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    assert {segment.details for segment in segments(uri)} == {details}
    check(uri)
    lance.dataset(uri).delete("id % 4 = 1")
    pennon.open(uri).compact(target_rows_per_fragment=300)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    [segment] = segments(uri)
    assert segment.details == details
    pennon.open(uri).optimize_indices()
    check(uri)


@pytest.mark.parametrize(
    "options",
    [
        {"custom_stop_words": WORDS[:5], "language": "French"},
        {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 3},
        {"base_tokenizer": "whitespace", "stem": False, "lower_case": False, "with_position": False},
    ],
    ids=["stop words", "ngram", "whitespace"],
)
def test_deltas_and_merges_keep_the_parameters(tmp_path: Path, options: dict[str, Any]) -> None:
    uri = write(tmp_path)
    pennon.open(uri).create_index(COLUMN, pennon.Inverted(**{**OPTIONS, **options}), fragment_ids=[0, 1, 2])
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    positions = options.get("with_position", True)
    check(uri, phrases=positions, **options)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    check(uri, phrases=positions, **options)


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.large_string(), pa.string_view(), pa.list_(pa.string())),
        *(pa.list_(pa.large_string()), pa.large_list(pa.string()), pa.large_list(pa.large_string())),
    ],
    ids=str,
)
def test_columns_of_text(tmp_path: Path, type_: pa.DataType) -> None:
    uri, nested = str(tmp_path / "t.lance"), pa.types.is_list(type_) or pa.types.is_large_list(type_)
    texts = [text and [*text.split(","), None] if nested else text for text in TEXTS[:ROWS]]
    table = pa.table({"id": range(ROWS), COLUMN: pa.array(texts, type_)})
    lance.write_dataset(table, uri, max_rows_per_file=FRAGMENT, data_storage_version="2.1")
    build(uri)
    check(uri)


def test_a_task_writes_several_partitions_where_memory_is_short(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, ROWS), uri, max_rows_per_file=FRAGMENT)
    plan = plan_inverted(Snapshot.open(Location.of(uri)), COLUMN, TextParams(), memory_bytes=1 << 20)
    target = replace(plan.target, partition_bytes=1 << 18, batch_rows=64)
    written = build_slice(target, str(uuid4()), (0, plan.slices[0]))
    assert len(written) > 1
    assert len({part.number for part in written}) == len(written)


def test_large_partitions_are_not_merged(uri: str) -> None:
    """Those that lost no document are copied but for their row ids."""
    build(uri, rows_per_task=150)
    snapshot = Snapshot.open(Location.of(uri))
    source = MergeSource(segments(uri)[0], segments(uri)[0].fragments)
    context = PlanContext(snapshot, 1, 1 << 16)
    plan = InvertedJobs().plan_merge(context, MergeRequest((source,)))
    assert len(plan.groups) == 4
    merged = InvertedJobs().merge(InProcess(), snapshot, plan)
    assert sizes_of_lists(merged) == sizes_of_lists(source.segment)
    assert len(sizes_of_lists(merged)) == 4


def sizes_of_lists(segment: IndexSegment) -> list[int]:
    return sorted(size for name, size in segment.file_sizes.items() if name.endswith("_invert.lance"))


def test_a_segment_of_other_parameters_is_refused(uri: str) -> None:
    build(uri, [0, 1])
    with pytest.raises(InvalidArgument, match="stem=False"):
        build(uri, [2, 3], stem=False)


@pytest.mark.parametrize("options", [{"base_tokenizer": "icu"}, {"block_size": 256}, {"format_version": 1}], ids=str)
def test_what_pennon_cannot_reproduce_is_kept_and_left_to_pylance(tmp_path: Path, options: dict[str, Any]) -> None:
    uri = write(tmp_path)
    lance.dataset(uri).create_scalar_index(COLUMN, "INVERTED", name=NAME, **options)
    lance.write_dataset(rows(ROWS, 60), uri, mode="append")
    before = segments(uri)
    step = pennon.open(uri).plan_optimize().steps[0]
    assert step.skipped, step
    pennon.open(uri).optimize_indices()
    assert segments(uri) == before
    assert pylance_search(uri, WORDS[0])


@pytest.mark.parametrize(
    "given", [{"base_tokenizer": "icu"}, {"language": "Klingon"}, {"min_ngram_length": 4}], ids=str
)
def test_bad_options(uri: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        build(uri, **given)
    with pytest.raises(UnsupportedColumn, match="int64"):
        pennon.open(uri).create_index("id", "INVERTED")


def test_the_audit_finds_documents_that_are_not_those_of_the_table(uri: str) -> None:
    """The segment is committed on a table whose texts have changed in one row."""
    build(uri)
    [segment] = segments(uri)
    lance.dataset(uri).update({COLUMN: "'entirely different words'"}, where="id = 11")
    moved = FrozenBitMap(Snapshot.open(Location.of(uri)).manifest.live)
    commit(uri, segment.uuid, OPTIONS_PARAMS, segment.files, list(moved))
    report = pennon.open(uri).audit()
    assert not report.ok
    assert "fragment:row" in str(report)


def test_an_empty_table_and_one_without_words(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(3), COLUMN: pa.array([None, "", "the"], pa.string())}), uri)
    pennon.open(uri).create_index(COLUMN, "INVERTED")
    assert not pylance_search(uri, "word")
    lance.write_dataset(pa.table({"id": range(3, 5), COLUMN: pa.array(["word", "the word"])}), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert len(pylance_search(uri, "word", fast_search=True)) == 2
    lance.dataset(uri).delete("id < 9")
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert pennon.open(uri).audit().ok


def test_description(uri: str) -> None:
    build(uri)
    snapshot = Snapshot.open(Location.of(uri))
    [segment] = segments(uri)
    described = INVERTED.open(snapshot, segment, snapshot.column(COLUMN), None, ByteCache()).describe()
    assert (described.measures["partitions"], described.measures["documents"]) == (1, stored_rows(uri))
    assert described.chart is not None
    most = described.chart.bars[0]
    term, count = most.title.split(": ")
    assert (len(pylance_search(uri, term)), count) == (most.value, f"{most.value} documents")
