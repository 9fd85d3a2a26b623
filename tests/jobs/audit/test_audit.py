"""An audit finds nothing in sound tables, and in damaged ones what is wrong; a repair puts just that right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from lance.indices import IndexConfig
from pyroaring import BitMap, BitMap64, FrozenBitMap

import pennon
from pennon.errors import IndexNotFound, InvalidArgument
from pennon.format.commit import commit_segments
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.btree.guard_rows import SENTINEL_ID
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import page_file_name, write_lookup
from pennon.index.btree.pages import Run, write_pages
from pennon.index.vector.vectors import to_lists
from pennon.jobs.audit.checksums import facts_of
from pennon.jobs.audit.report import AuditReport, Severity
from pennon.table import Table
from tests.support import forged_files
from tests.support.damage import truncate
from tests.support.tables import full_scan, stock_answer, write_every_type

pytestmark = pytest.mark.usefixtures("process_engine")

DIM = 8
KINDS = ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ"]
QUANTIZED: dict[str, dict[str, Any]] = {"IVF_PQ": {"num_sub_vectors": 4}, "IVF_HNSW_PQ": {"num_sub_vectors": 4}}


def rows(count: int, start: int = 0, scale: float = 1.0) -> pa.Table:
    ids = np.arange(start, start + count)
    vectors = np.random.default_rng(start).standard_normal((count, DIM)).astype(np.float32) * np.float32(scale)
    texts = pa.array([None if i % 17 == 0 else f"t{i % 50}" for i in ids.tolist()])
    keys = pa.array([None if i % 19 == 0 else i * 13 % 143 for i in ids.tolist()], pa.int64())
    return pa.table({"id": pa.array(ids), "k": keys, "text": texts, "v": to_lists(vectors)})


def snapshot_of(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def segment_of(uri: str, name: str) -> IndexSegment:
    [segment] = [s for s in snapshot_of(uri).manifest.segments if s.name == name]
    return segment


def check(table: Table, column: str = "k") -> None:
    for value in range(0, 143, 13):
        expected = full_scan(table.uri, f"{column} = {value}")
        assert sorted(table.scan(f"{column} = {value}", ["id"])["id"].to_pylist()) == expected
        assert stock_answer(table.uri, f"{column} = {value}")[0] == expected


def problems(report: AuditReport) -> dict[str | None, str]:
    return {finding.index: finding.problem for finding in report.errors}


@pytest.mark.parametrize("stable", [False, True])
def test_nothing_is_wrong_with_what_pennon_maintains(tmp_path: Path, stable: bool) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(600), uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    table = pennon.open(uri)
    table.create_index("id", batch_size=64)
    table.create_index("k", ranges=3, batch_size=32)
    table.create_index("text", batch_size=32)
    for kind in KINDS:
        options = {"num_partitions": 3, "max_iters": 2, **QUANTIZED.get(kind, {})}
        table.create_index("v", kind, name=kind.lower(), metric="cosine" if kind == "IVF_SQ" else "l2", **options)
    lance.dataset(uri).delete("id % 7 = 0 or id between 200 and 299")
    lance.write_dataset(rows(80, 600), uri, mode="append")
    table.optimize_indices(num_indices_to_merge=0)
    report = table.audit(recall_queries=3)
    assert report.ok, str(report)
    assert (report.indices, report.segments) == (10, 20)
    assert sum("recall@10" in finding.problem for finding in report.findings) == len(KINDS)
    assert all(finding.severity is Severity.NOTE for finding in report.findings), str(report)
    assert "fragment that left the table (2)" in str(report)
    if stable:
        table.compact(target_rows_per_fragment=300)
    else:
        # Graphs do not follow deferred compactions that drop deleted rows.
        table.compact(target_rows_per_fragment=90)
        table.compact(remap="deferred", target_rows_per_fragment=200)
        table.catch_up_indices()
        table.compact(remap="deferred", target_rows_per_fragment=1000)
        lance.dataset(uri).update({"id": "id + 10000"}, where="k = 13")
    report = table.audit(recall_queries=0)
    assert report.ok, str(report)
    if not stable:
        assert "10 segments behind the Fragment Reuse Index" in str(report)
        assert "1 compaction that no index file needs" in str(report)


def test_nothing_is_wrong_with_what_stock_maintains(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows(800), uri, max_rows_per_file=200)
    dataset.create_scalar_index("k", "BTREE")
    dataset.create_scalar_index("text", "BTREE")
    for kind in ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_SQ"):
        options = {"num_partitions": 2, **QUANTIZED.get(kind, {})}
        lance.dataset(uri).create_index("v", kind, name=kind.lower(), replace=False, **options)
    lance.dataset(uri).delete("id % 9 = 0")
    lance.write_dataset(rows(100, 800), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=500)
    lance.dataset(uri).create_scalar_index("text", IndexConfig("fm", {}), name="unknown")
    report = pennon.open(uri).audit(recall_queries=2)
    assert report.ok, str(report)
    assert "not audited: unknown index type" in str(report)


def test_values_of_every_kind_are_told_apart(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=1000, rows_per_file=250)
    table = pennon.open(uri)
    for column in ("f16", "f64", "flag", "ts_ns", "money", "wide", "large_text", "raw", "key", "nothing", "inner.leaf"):
        table.create_index(column, ranges=2, batch_size=32)
    report = table.audit()
    assert report.findings == (), str(report)
    addresses = np.zeros(6, dtype=np.uint64)
    texts = pa.array(["", "a", "b", "ab", "ba", "x" * 100_000])
    assert len(np.unique(facts_of(addresses, texts))) == 6
    assert facts_of(addresses[:2], texts.slice(3, 2)).tolist() == facts_of(addresses, texts).tolist()[3:5]


def rewrite(uri: str, name: str, change: Callable[[pa.Table], pa.Table], pattern: str = "*page_data.lance") -> None:
    """The last file of an index with other rows, as a faulty writer would have written and committed it."""
    segment = segment_of(uri, name)
    path = max((Path(uri) / segment.directory).glob(pattern))
    table = change(LanceFileReader(str(path)).read_all().to_table())
    path.unlink()
    with LanceFileWriter(str(path), table.schema.remove_metadata()) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    # A writer that knows of no digests; with them, every change of a row would be found by them first.
    for lookup in path.parent.glob("page_lookup.lance"):
        opened = forged_files.read(lookup)
        forged_files.without_digests(opened)
        forged_files.write(lookup, opened)
    sizes = tuple(IndexFile(f.path, (path.parent / f.path).stat().st_size) for f in segment.files)
    commit_segments(snapshot_of(uri), [replace(segment, files=sizes)], [])


def with_ids(change: Callable[[Any], None]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        ids = table["ids"].to_numpy().copy()
        change(ids)
        return table.set_column(1, table.schema.field("ids"), pa.array(ids))

    return changed


def forget(ids: Any) -> None:
    ids[5] = SENTINEL_ID


def repeat(ids: Any) -> None:
    ids[5] = ids[6]


def exchange(ids: Any) -> None:
    ids[5], ids[-1] = ids[-1], ids[5]


def invent(ids: Any) -> None:
    ids[5] = 77


def files_of(uri: str, name: str) -> list[Path]:
    return sorted((Path(uri) / segment_of(uri, name).directory).glob("part_*"))


def swap(uri: str, name: str) -> None:
    first, *_, last = files_of(uri, name)
    spare = first.with_suffix(".spare")
    shutil.move(first, spare)
    shutil.move(last, first)
    shutil.move(spare, last)


DAMAGE: dict[str, tuple[Callable[[str, str], None], str]] = {
    "deleted": (lambda uri, name: files_of(uri, name)[0].unlink(), "is missing"),
    "truncated": (lambda uri, name: truncate(files_of(uri, name)[0]), "bytes, but its index recorded"),
    "swapped": (swap, "bytes, but its index recorded|does not match the lookup"),
    "disordered": (
        lambda uri, name: rewrite(uri, name, lambda t: t.take(list(range(t.num_rows))[::-1])),
        "does not match the lookup",
    ),
    "forgotten": (lambda uri, name: rewrite(uri, name, with_ids(forget)), ": 1 row missing"),
    "repeated": (lambda uri, name: rewrite(uri, name, with_ids(repeat)), "1 row missing, 1 row more than once"),
    "exchanged": (lambda uri, name: rewrite(uri, name, with_ids(exchange)), ": 2 rows with another value"),
    "invented": (
        lambda uri, name: rewrite(uri, name, with_ids(invent)),
        "1 row missing, 1 row that the table does not have",
    ),
}


def test_damaged_files_and_rows_are_found_and_built_anew(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    ids = np.arange(300)
    columns = {name: pa.array(ids * 7 % 143) for name in DAMAGE}
    lance.write_dataset(pa.table({"id": pa.array(ids), **columns, "sound": ids}), uri, max_rows_per_file=60)
    table = pennon.open(uri)
    for name in (*DAMAGE, "sound"):
        table.create_index(name, name=name, ranges=3, batch_size=16)
    sound = segment_of(uri, "sound").uuid
    for name, (harm, _) in DAMAGE.items():
        harm(uri, name)
    report = table.audit()
    assert not report.ok
    assert problems(report).keys() == DAMAGE.keys()
    for name, (_, said) in DAMAGE.items():
        assert any(part in problems(report)[name] for part in said.split("|")), problems(report)[name]
    report = table.audit(repair=True)
    assert report.ok, str(report)
    assert {finding.index for finding in report.repaired} == DAMAGE.keys()
    assert segment_of(uri, "sound").uuid == sound
    for name in DAMAGE:
        check(table, name)


def test_a_share_of_the_fragments(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(400), uri, max_rows_per_file=40)
    table = pennon.open(uri)
    table.create_index("k")
    assert table.audit(0.3).rows_compared == 120
    for options in ({"sample": 0.0}, {"sample": 1.5}, {"recall_queries": -1}):
        with pytest.raises(InvalidArgument):
            table.audit(**options)
    with pytest.raises(IndexNotFound, match="no index 'x'"):
        table.audit(index_names=["x"])


def change_in_place(uri: str, fragment: int, column: str, values: pa.Array) -> None:
    """As a writer does that does not tell which columns it changed, so that coverage stays."""
    dataset = lance.dataset(uri)
    target = dataset.get_fragment(fragment)
    ids = target.scanner(columns=[], with_row_id=True).to_table()["_rowid"]
    metadata, _ = target.update_columns(pa.table({"_rowid": ids[: len(values)], column: values}))
    operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=[])
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def merge_in_place(uri: str, fragment: int, column: str, values: pa.Array, segment: IndexSegment) -> None:
    """Stock accepts a segment whose fragment a Merge has changed since it was scanned."""
    dataset = lance.dataset(uri)
    target = dataset.get_fragment(fragment)
    ids = target.scanner(columns=[], with_row_id=True).to_table()["_rowid"]
    metadata, _ = target.update_columns(pa.table({"_rowid": ids[: len(values)], column: values}))
    fragments = [metadata if f.fragment_id == fragment else f.metadata for f in dataset.get_fragments()]
    operation = lance.LanceOperation.Merge(fragments, dataset.lance_schema)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    commit_segments(Snapshot.open(Location.of(uri), dataset.version), [segment], [])


def test_coverage_of_values_that_changed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(400), uri, max_rows_per_file=100)
    table = pennon.open(uri)
    for column, kind in (("k", "BTREE"), ("id", "BTREE"), ("v", "IVF_PQ")):
        options = {"num_partitions": 2, "num_sub_vectors": 4, "max_iters": 2} if kind == "IVF_PQ" else {}
        table.create_index(column, kind, **options)
    built = segment_of(uri, "id_idx")
    change_in_place(uri, 1, "k", pa.array([500] * 30, pa.int64()))
    change_in_place(uri, 2, "v", to_lists(np.full((40, DIM), 3, dtype=np.float32)))
    merge_in_place(uri, 3, "id", pa.array(np.arange(5000, 5020)), built)
    table = pennon.open(uri)
    report = table.audit()
    found = problems(report)
    assert found.keys() == {"k_idx", "v_idx", "id_idx"}, str(report)
    assert "30 rows with another value" in found["k_idx"]
    assert "20 rows with another value" in found["id_idx"]
    assert "codes that do not match their vectors, in 1 fragment (2)" in found["v_idx"]
    report = table.audit(repair=True)
    assert report.ok, str(report)
    check(table)
    check(table, "id")
    assert table.search("v", [3.0] * DIM, 40, columns=["id"])["id"].to_numpy().min() >= 200


def test_segments_that_overlap(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(300), uri, max_rows_per_file=100)
    table = pennon.open(uri)
    table.create_index("k", fragment_ids=[0, 1])
    table.create_index("id", name="other", fragment_ids=[1, 2])
    table.create_index("k", name="twin", fragment_ids=[1])
    commit_segments(snapshot_of(uri), [replace(segment_of(uri, "twin"), name="k_idx")], [])
    report = table.audit()
    assert problems(report) == {"k_idx": "two segments cover the same 1 fragment (1)"}
    report = table.audit(repair=True)
    assert report.ok, str(report)
    [index, _] = sorted(table.indices(), key=lambda index: index.name)
    assert [segment.fragments for segment in index.segments] == [(0, 1)]
    check(table)


def test_stock_compaction_deferred_and_then_at_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows(600), uri, max_rows_per_file=100)
    dataset.create_scalar_index("k", "BTREE")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=2000)
    table = pennon.open(uri)
    report = table.audit()
    assert "600 rows missing" in problems(report)["k_idx"], str(report)
    assert table.audit(repair=True).ok
    check(table)


def test_a_range_that_stock_compaction_emptied(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    ids = np.arange(400)
    lance.write_dataset(pa.table({"id": ids, "k": ids % 100}), uri, max_rows_per_file=100)
    snapshot, uuid = snapshot_of(uri), str(uuid4())
    keys = np.sort(ids % 100)
    addresses = (ids % 4).astype(np.uint64) << np.uint64(32) | keys.astype(np.uint64)
    directory, none = f"_indices/{uuid}", addresses[:0]
    parts = [
        write_pages(
            snapshot.store,
            directory,
            page_file_name(number << 32),
            number << 32,
            iter([Run(none, pa.array(keys[half]), addresses[half])]),
            pa.int64(),
            16,
            snapshot.storage_version,
        )
        for number, half in enumerate((slice(0, 200), slice(200, 400)))
    ]
    lookup = write_lookup(snapshot.store, directory, pa.int64(), parts, 16, snapshot.storage_version)
    segment = IndexSegment(
        uuid=uuid,
        name="k_idx",
        fields=(snapshot.column("k").field_id,),
        dataset_version=snapshot.version,
        fragments=FrozenBitMap(BitMap(range(4))),
        type_url=BTREE.type_url,
        details=b"",
        index_version=0,
        files=(*(part.file for part in parts), lookup),
        created_at=datetime.now(UTC),
    )
    commit_segments(snapshot, [segment], [])
    table = pennon.open(uri)
    assert table.audit().ok
    lance.dataset(uri).delete("k >= 50")
    lance.dataset(uri).delete("id % 5 = 0")
    lance.dataset(uri).optimize.compact_files(materialize_deletions_threshold=0.01)
    report = table.audit()
    assert "page files that do not add up" in problems(report)["k_idx"], str(report)
    assert table.audit(repair=True).ok
    check(table)


def test_codes_that_stock_merged_from_other_bounds(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows(1000), uri)
    dataset = lance.write_dataset(rows(1000, 1000, scale=4.0), uri, mode="append")
    centroids = np.random.default_rng(1).standard_normal((2, DIM)).astype(np.float32)
    common: dict[str, Any] = {"name": "v_idx", "metric": "l2", "num_partitions": 2, "ivf_centroids": centroids}
    parts = [dataset.create_index_uncommitted("v", "IVF_SQ", fragment_ids=[f], **common) for f in (0, 1)]
    dataset.commit_existing_index_segments("v_idx", "v", [dataset.merge_existing_index_segments(parts)])
    table = pennon.open(uri)
    report = table.audit()
    assert "codes that do not match their vectors" in problems(report)["v_idx"], str(report)
    report = table.audit(repair=True)
    assert report.ok, str(report)
    assert next(float(f.problem.split()[2]) for f in report.findings if "recall@10" in f.problem) > 0.95


def test_codes_that_stock_chose_by_the_largest_product(tmp_path: Path) -> None:
    """Its optimize takes another codeword than its build where the metric is dot."""
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows(600), uri)
    dataset.create_index("v", "IVF_PQ", metric="dot", num_partitions=2, num_sub_vectors=4)
    assert pennon.open(uri).audit(recall_queries=0).ok
    lance.write_dataset(rows(200, 600), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=1)
    table = pennon.open(uri)
    assert "do not match their vectors, in 1 fragment (1)" in problems(table.audit())["v_idx"]
    assert table.audit(repair=True).ok


def test_a_vector_index_that_lost_its_files(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(600), uri, max_rows_per_file=200)
    table = pennon.open(uri)
    table.create_index("v", "IVF_HNSW_SQ", num_partitions=2, max_iters=2)
    (Path(uri) / segment_of(uri, "v_idx").directory / "index.idx").unlink()
    report = table.audit(repair=True)
    assert report.ok, str(report)
    [gone] = report.repaired
    assert "index.idx is missing" in gone.problem
    [index] = table.indices()
    assert (index.type, index.coverage) == ("IVF_HNSW_SQ", 1.0)


def test_what_cannot_be_repaired_stays_told(tmp_path: Path) -> None:
    """Neither files nor manifest say how the vectors were indexed; the other index is repaired all the same."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(300), uri, max_rows_per_file=100)
    table = pennon.open(uri)
    table.create_index("v", "IVF_SQ", num_partitions=2, max_iters=2)
    table.create_index("k")
    for name, file in (("v_idx", "index.idx"), ("k_idx", "page_lookup.lance")):
        (Path(uri) / segment_of(uri, name).directory / file).unlink()
    commit_segments(snapshot_of(uri), [replace(segment_of(uri, "v_idx"), details=b"")], [])
    report = table.audit(repair=True)
    assert [finding.index for finding in report.repaired] == ["k_idx"]
    assert "is missing" in problems(report)["v_idx"]
    assert "not repaired: neither a file of index 'v_idx'" in str(report)
    check(table)


def test_moves_that_make_no_sense(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(400), uri, max_rows_per_file=100)
    table = pennon.open(uri)
    table.create_index("k")
    table.create_index("v", "IVF_SQ", num_partitions=2, max_iters=2)
    table.compact(remap="deferred", target_rows_per_fragment=200)
    snapshot = snapshot_of(uri)
    entry = snapshot.manifest.reuse_segment
    assert entry is not None
    details = pb.FragmentReuseDetails.FromString(entry.details)
    group = details.inline.versions[0].groups[0]
    survivors = BitMap64.deserialize(group.changed_row_addrs)
    survivors.remove(5)
    group.changed_row_addrs = survivors.serialize()
    group.new_fragments[0].physical_rows -= 1
    wrong = replace(entry, uuid=str(uuid4()), details=details.SerializeToString())
    commit_segments(snapshot, [wrong], [entry])
    table = pennon.open(uri)
    report = table.audit()
    assert "moves 199 rows into fragment 4, which has 200" in problems(report)[None], str(report)
    report = table.audit(repair=True)
    assert report.ok, str(report)
    assert table.fragment_reuse() is None
    assert [index.coverage for index in table.indices()] == [1.0, 1.0]
    check(table)


def test_moves_that_cannot_be_read_stop_every_writer(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(200), uri, max_rows_per_file=100)
    table = pennon.open(uri)
    table.create_index("k")
    table.compact(remap="deferred", target_rows_per_fragment=200)
    snapshot = snapshot_of(uri)
    entry = snapshot.manifest.reuse_segment
    assert entry is not None
    details = pb.FragmentReuseDetails.FromString(entry.details)
    details.inline.versions[0].groups[0].new_fragments[0].physical_rows += 1
    commit_segments(snapshot, [replace(entry, uuid=str(uuid4()), details=details.SerializeToString())], [entry])
    report = pennon.open(uri).audit(repair=True)
    assert "moves 200 rows into 201 places" in problems(report)[None]
    assert report.errors[0].remedy.startswith("Restore the last version before it")
    with pytest.raises(OSError, match="failed to build compact remap"):
        lance.write_dataset(rows(10, 900), uri, mode="append")


def test_files_that_no_version_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(50), uri)
    table = pennon.open(uri)
    table.create_index("k")
    left = Path(uri) / "_indices" / str(uuid4())
    left.mkdir()
    (left / "page_data.lance").write_bytes(b"x")
    [note] = table.audit().findings
    assert note.severity is Severity.NOTE
    assert left.name in note.problem
