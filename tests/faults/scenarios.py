"""Tables in every state a job may find them in, the jobs, and what must hold of a table whatever became of the job."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments

import pennon
from pennon.format.cleanup import delete_orphans, orphans
from pennon.format.lance_file import LanceFile
from pennon.format.manifest import VERSIONS, parse_manifest
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.vectors import to_lists
from pennon.jobs.maintain import MaintenancePolicy
from pennon.table import Table
from pennon.testing.cases import labels
from pennon.testing.oracles import full_scan, full_scans, pylance_rows
from tests.support.geometries import POSITION, rectangle

DIM = 8
FRAGMENT_ROWS = 60
WORDS = "s_words"
FILTERS = (
    "k = 7",
    "k between 3 and 5",
    "k is null",
    "s = 's3'",
    "s like 's1%' and k > 4",
    "not (k > 3)",
    "array_has(l, 'a')",
    "NOT array_has_any(l, ['b', NULL])",
    "contains(s, 's13')",
    f"st_intersects(p, {rectangle(2, 3, 9, 8)}) or p is null",
)
EAGER = MaintenancePolicy(min_fragments_to_compact=1, max_reuse_versions=0, target_rows_per_fragment=1000)


def rows(count: int, start: int) -> pa.Table:
    rng = np.random.default_rng(start)
    geometry = pa.field("p", POSITION, metadata={"ARROW:extension:name": "geoarrow.point"})
    table = pa.table(
        {
            "id": np.arange(start, start + count),
            "k": pa.array([None if v == 0 else int(v) for v in rng.integers(0, 20, count)], pa.int64()),
            "s": pa.array([None if v == 0 else f"s{v}" for v in rng.integers(0, 15, count)]),
            "l": labels("l").values(rng, count),
            "v": to_lists(rng.standard_normal((count, DIM), dtype=np.float32)),
        }
    )
    drawn = rng.integers(0, 20, (count, 2)).tolist()
    points = [None if x == 0 else {"x": x / 2, "y": y / 2} for x, y in drawn]
    return table.append_column(geometry, pa.array(points, POSITION))


def plain(uri: str, *, stable: bool = False) -> None:
    """Four fragments, some rows deleted, no index."""
    lance.write_dataset(rows(4 * FRAGMENT_ROWS, 0), uri, max_rows_per_file=FRAGMENT_ROWS, enable_stable_row_ids=stable)
    lance.dataset(uri).delete("id % 9 = 4")


def build_btree(table: Table) -> None:
    table.create_index("k", ranges=3, batch_size=16, rows_per_task=100)


def build_zones(table: Table) -> None:
    table.create_index("k", "ZONEMAP", "k_zones", rows_per_zone=16, rows_per_task=100)
    table.create_index("s", "BLOOMFILTER", "s_bloom", number_of_items=16, rows_per_task=100)


def build_bitmap(table: Table) -> None:
    table.create_index("k", "BITMAP", "k_bitmap", rows_per_task=100)


def build_labels(table: Table) -> None:
    table.create_index("l", "LABEL_LIST", rows_per_task=100)


def bitmaps(uri: str) -> None:
    """Two segments of each bitmap index, and a fragment that none covers."""
    plain(uri)
    for some in ([0, 1], [2, 3]):
        pennon.open(uri).create_index("k", "BITMAP", "k_bitmap", fragment_ids=some)
        pennon.open(uri).create_index("l", "LABEL_LIST", fragment_ids=some)
    lance.write_dataset(rows(FRAGMENT_ROWS, 1000), uri, mode="append")
    lance.dataset(uri).delete("id % 11 = 2")


def build_flat(table: Table) -> None:
    table.create_index("v", "IVF_FLAT", num_partitions=4)


def build_pq(table: Table) -> None:
    table.create_index("v", "IVF_PQ", num_partitions=4, num_sub_vectors=2, num_bits=4)


def build_two_segments(table: Table) -> None:
    table.create_index("v", "IVF_PQ", num_partitions=4, num_sub_vectors=2, num_bits=4, num_segments=2)


def build_hnsw(table: Table) -> None:
    table.create_index("v", "IVF_HNSW_SQ", num_partitions=3)


def build_ngram(table: Table) -> None:
    table.create_index("s", "NGRAM", rows_per_task=100)


def build_boxes(table: Table) -> None:
    table.create_index("p", "RTREE", page_size=16, rows_per_task=100)


def boxes(uri: str, *, stable: bool = False) -> None:
    """With an R-tree of two segments; a fragment on top is not covered."""
    plain(uri, stable=stable)
    table = pennon.open(uri)
    build_boxes(table)
    for start in (1000, 2000):
        lance.write_dataset(rows(FRAGMENT_ROWS, start), uri, mode="append")
        if start < 2000:
            table.refresh()
            table.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 11 = 2")


def boxes_deferred(uri: str) -> None:
    boxes(uri)
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=150)


def build_words(table: Table) -> None:
    table.create_index("s", "INVERTED", WORDS, with_position=True, rows_per_task=100)


def texts(uri: str, *, stable: bool = False) -> None:
    """With an inverted index of two segments, the first of three partitions; a fragment on top is not covered."""
    plain(uri, stable=stable)
    table = pennon.open(uri)
    build_words(table)
    for start in (1000, 2000):
        lance.write_dataset(rows(FRAGMENT_ROWS, start), uri, mode="append")
        if start < 2000:
            table.refresh()
            table.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 11 = 2")


def texts_stable(uri: str) -> None:
    texts(uri, stable=True)


def texts_deferred(uri: str) -> None:
    texts(uri)
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=150)


def ngrams(uri: str, *, stable: bool = False) -> None:
    """With an n-gram index of two segments; a fragment on top is not covered."""
    plain(uri, stable=stable)
    table = pennon.open(uri)
    build_ngram(table)
    for start in (1000, 2000):
        lance.write_dataset(rows(FRAGMENT_ROWS, start), uri, mode="append")
        if start < 2000:
            table.refresh()
            table.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 11 = 2")


def ngrams_stable(uri: str) -> None:
    ngrams(uri, stable=True)


def ngrams_deferred(uri: str) -> None:
    ngrams(uri)
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=150)


def indexed(uri: str, *, stable: bool = False) -> None:
    """With a B-tree and an IVF_SQ over all of it, and two deltas; a fragment on top is not covered."""
    plain(uri, stable=stable)
    table = pennon.open(uri)
    build_btree(table)
    table.create_index("v", "IVF_SQ", num_partitions=4)
    for start in (1000, 2000, 3000):
        lance.write_dataset(rows(FRAGMENT_ROWS, start), uri, mode="append")
        if start < 3000:
            table.refresh()
            table.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 11 = 2")


def zoned(uri: str, *, stable: bool = False) -> None:
    """With a zone map and Bloom filters, and a delta of each; a fragment on top is not covered."""
    plain(uri, stable=stable)
    build_zones(pennon.open(uri))
    for start in (1000, 2000):
        lance.write_dataset(rows(FRAGMENT_ROWS, start), uri, mode="append")
        if start < 2000:
            pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 11 = 2")


def zoned_stable(uri: str) -> None:
    zoned(uri, stable=True)


def indexed_stable(uri: str) -> None:
    indexed(uri, stable=True)


def deferred(uri: str) -> None:
    """The same after a compaction that index files have yet to follow."""
    indexed(uri)
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=150)


def caught_up(uri: str) -> None:
    deferred(uri)
    pennon.open(uri).catch_up_indices()


def beside_foreign(uri: str) -> None:
    """With a B-tree and a graph, beside an index that Pennon cannot rewrite."""
    plain(uri)
    table = pennon.open(uri)
    build_btree(table)
    build_hnsw(table)
    lance.dataset(uri).create_scalar_index("s", "INVERTED", base_tokenizer="icu")
    lance.dataset(uri).delete("id % 11 = 2")


def check_foreign(uri: str) -> None:
    """pylance uses the index that Pennon does not know, over all rows, and can search the graph."""
    dataset = lance.dataset(uri)
    asked = dataset.scanner(full_text_query={"query": "s3", "columns": ["s"]}, columns=["id", "_score"])
    assert sorted(asked.to_table()["id"].to_pylist()) == full_scan(uri, "s = 's3'")
    live = {fragment.fragment_id for fragment in dataset.get_fragments()}
    [index] = [each for each in dataset.describe_indices() if each.name == "s_idx"]
    assert live <= set().union(*(segment.fragment_ids for segment in index.segments))
    nearest = {"column": "v", "q": np.zeros(DIM, np.float32), "k": 5, "nprobes": 3}
    assert dataset.to_table(nearest=nearest, columns=["id", "_distance"]).num_rows == 5


def damaged(uri: str) -> None:
    """With a page file cut short and a segment over too much."""
    indexed(uri)
    [cut, *_] = sorted(Path(uri, "_indices").rglob("part_*_page_data.lance"))
    cut.write_bytes(cut.read_bytes()[:-100])


def littered(uri: str) -> None:
    """With index and data files that no version names."""
    indexed(uri)
    directory = Path(uri, "_indices", "0a0a0a0a-0000-4000-8000-000000000000")
    directory.mkdir()
    for number in range(3):
        (directory / f"file-{number}").write_bytes(b"left by a crash")
    for number in range(3):
        write_fragments(rows(2, number), uri, mode="append")


def clean(table: Table) -> None:
    delete_orphans(snapshot_of(table.uri), 0)


def repair(table: Table) -> None:
    with warnings.catch_warnings(action="ignore"):
        table.audit(repair=True)


Rows = dict[int, Any]


def update(table: Table) -> None:
    table.update_column("k", "k + 100", where="id % 5 = 0 and k < 100")


def update_rows(table: Table) -> None:
    table.update({"k": "k + 100"}, where="id % 5 = 0 and k < 100", maintain=True)


def updated(before: Rows) -> Rows:
    return {i: _updated(row) for i, row in before.items()}


def delete_rows(table: Table) -> None:
    table.delete("k between 3 and 5 or id < 60")


def without_deleted(before: Rows) -> Rows:
    return {i: row for i, row in before.items() if i >= 60 and not (row["k"] is not None and 3 <= row["k"] <= 5)}


def changes() -> pa.Table:
    """Rows of which the first are in the table."""
    return rows(60, 100).set_column(0, "id", pa.array([*range(100, 130), *range(2000, 2030)], pa.int64()))


def merge_rows(table: Table) -> None:
    table.merge(changes(), on="id", when_not_matched_by_source=pennon.Delete("target.id < 20"))


def merged(before: Rows) -> Rows:
    kept = {i: row for i, row in before.items() if i >= 20}
    return kept | {row["id"]: row for row in changes().to_pylist()}


@dataclass(frozen=True)
class Scenario:
    """A job on a table in some state. `after` are the rows that it makes of others; they may have changed or not, all
    at once. Without it, rows may not change. `also` checks what only this scenario has."""

    name: str
    prepare: Callable[[str], None]
    run: Callable[[Table], Any]
    after: Callable[[Rows], Rows] | None = None
    damaged: bool = False
    also: Callable[[str], None] | None = None


def tune(table: Table) -> None:
    """For a recall that few settings have to be measured for: what is stored has the same form."""
    table.tune("v", 0.5, 5, sample=20, store=True)


SCENARIOS = [
    Scenario("store a tuning", indexed, tune),
    Scenario("build a B-tree", plain, build_btree),
    Scenario("build a B-tree again", indexed, build_btree),
    Scenario("build a bitmap index", plain, build_bitmap),
    Scenario("build an index of labels", plain, build_labels),
    Scenario("merge bitmaps", bitmaps, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("compact bitmaps", bitmaps, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("build an IVF_FLAT", plain, build_flat),
    Scenario("build an IVF_PQ", plain, build_pq),
    Scenario("build an IVF_PQ in two segments", plain, build_two_segments),
    Scenario("build an IVF_HNSW_SQ", plain, build_hnsw),
    Scenario("build zones", plain, build_zones),
    Scenario("merge zones", zoned, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("compact, make zones again", zoned, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("compact, zones on stable row ids", zoned_stable, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("build an INVERTED", plain, build_words),
    Scenario("merge an INVERTED", texts, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("merge an INVERTED, stable row ids", texts_stable, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("remap an INVERTED", texts, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("catch up an INVERTED", texts_deferred, lambda t: t.catch_up_indices()),
    Scenario("build an NGRAM", plain, build_ngram),
    Scenario("merge an NGRAM", ngrams, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("merge an NGRAM, stable row ids", ngrams_stable, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("remap an NGRAM", ngrams, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("catch up an NGRAM", ngrams_deferred, lambda t: t.catch_up_indices()),
    Scenario("build an RTREE", plain, build_boxes),
    Scenario("merge an RTREE", boxes, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("remap an RTREE", boxes, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("catch up an RTREE", boxes_deferred, lambda t: t.catch_up_indices()),
    Scenario("add deltas", indexed, lambda t: t.optimize_indices(num_indices_to_merge=0)),
    Scenario("merge segments", indexed, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("merge segments, stable row ids", indexed_stable, lambda t: t.optimize_indices(num_indices_to_merge=9)),
    Scenario("retrain", indexed, lambda t: t.optimize_indices(retrain=True)),
    Scenario("compact, remap at once", indexed, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario("compact, stable row ids", indexed_stable, lambda t: t.compact(target_rows_per_fragment=150)),
    Scenario(
        "compact beside an unknown index",
        beside_foreign,
        lambda t: t.compact(target_rows_per_fragment=150),
        also=check_foreign,
    ),
    Scenario("compact, defer the remap", indexed, lambda t: t.compact(remap="deferred", target_rows_per_fragment=150)),
    Scenario("compact, drop coverage", indexed, lambda t: t.compact(remap="drop", target_rows_per_fragment=150)),
    Scenario("catch up", deferred, lambda t: t.catch_up_indices()),
    Scenario("trim", caught_up, lambda t: t.trim_fragment_reuse()),
    Scenario("maintain", deferred, lambda t: t.maintain(EAGER)),
    Scenario("update a column", indexed, update, updated),
    Scenario("update rows", indexed, update_rows, updated),
    Scenario("delete rows", indexed, delete_rows, without_deleted),
    Scenario("merge rows", indexed, merge_rows, merged),
    Scenario("merge rows, stable row ids", indexed_stable, merge_rows, merged),
    Scenario("drop an index", indexed, lambda t: t.drop_index("k_idx") if t.indices()[0].name == "k_idx" else None),
    Scenario("repair", damaged, repair, damaged=True),
    Scenario("clean orphans", littered, clean),
]


def snapshot_of(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


@dataclass(frozen=True)
class Contents:
    """Rows of the newest version by id, how many every version has, the data files they name, and digests of all
    files, for `are_those_of`."""

    newest: dict[int, Any]
    versions: dict[int, int]
    data_files: set[str]
    files: dict[str, bytes]

    @classmethod
    def of(cls, uri: str, *, digested: bool = True) -> Contents:
        """Everything, as pylance reads it."""
        versions = every_version(uri)
        found = versions[-1].to_table().sort_by("id").to_pylist()
        counts = {dataset.version: dataset.count_rows() for dataset in versions}
        return cls(
            {row["id"]: row for row in found}, counts, named_data_files(versions), digests(uri) if digested else {}
        )

    def are_those_of(self, uri: str) -> bool:
        """Whether a table has the same versions in the same files, next to any that no version names."""
        now = digests(uri)
        added = now.keys() - self.files.keys()
        return now.items() >= self.files.items() and not any(path.startswith(VERSIONS) for path in added)


def digests(uri: str) -> dict[str, bytes]:
    """Of all files of a table, by their path in it."""
    files = (path for path in Path(uri).rglob("*") if path.is_file())
    return {path.relative_to(uri).as_posix(): hashlib.sha256(path.read_bytes()).digest() for path in files}


def check(uri: str, before: Contents, scenario: Scenario) -> Contents:
    """The table reads as before, through every index of every reader, and nothing that a version names is missing.
    Returns what it holds now."""
    SHARED_CACHE.clear()
    now = Contents.of(uri, digested=False)
    if scenario.after is None:
        assert now.newest == before.newest
    else:
        after = scenario.after(before.newest)
        assert now.newest in (before.newest, after), "a part of the rows was changed"
    assert {v: n for v, n in now.versions.items() if v in before.versions} == before.versions
    with warnings.catch_warnings(action="ignore" if scenario.damaged else "error"):
        _check_answers(uri, now, stock=not scenario.damaged)
    check_files(uri, damaged=scenario.damaged)
    if scenario.also is not None:
        scenario.also(uri)
    return now


def _updated(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 5 == 0 and row["k"] is not None and row["k"] < 100:
        return {**row, "k": row["k"] + 100}
    return row


def _check_answers(uri: str, now: Contents, *, stock: bool) -> None:
    table, dataset = pennon.open(uri), lance.dataset(uri)
    for condition, expected in full_scans(dataset, FILTERS).items():
        assert sorted(table.scan(condition, ["id"])["id"].to_pylist()) == expected, condition
        if stock:
            assert pylance_rows(dataset, condition) == expected, f"stock: {condition}"
    if stock and any(index.name == WORDS for index in table.indices()):
        for word in ("s3", "s12", "s99"):
            found = dataset.to_table(columns=["id"], full_text_query=word)
            assert sorted(found["id"].to_pylist()) == full_scan(uri, f"s = '{word}'"), word
        assert table.audit(index_names=[WORDS]).ok
    ids = sorted(now.newest)
    vectors = np.array([now.newest[i]["v"] for i in ids], dtype=np.float32)
    query = np.full(DIM, 0.25, dtype=np.float32)
    exact = np.sort(((vectors - query) ** 2).sum(axis=1))[:5]
    found = table.search("v", query, 5, nprobes=1000, refine_factor=100, columns=["id"])
    np.testing.assert_allclose(np.sort(found["_distance"].to_numpy()), exact, rtol=1e-4)
    fetched = vectors[np.searchsorted(ids, found["id"].to_numpy())]
    np.testing.assert_allclose(((fetched - query) ** 2).sum(axis=1), found["_distance"].to_numpy(), rtol=1e-4)


def check_files(uri: str, *, damaged: bool = False) -> set[str]:
    """Every file that a segment of any version names is there, as long as recorded. Returns the segments' uuids."""
    store = snapshot_of(uri).store
    named: set[str] = set()
    for path in store.list(VERSIONS):
        for segment in parse_manifest(store.read(path), path).segments if path.endswith(".manifest") else ():
            named.add(segment.uuid)
            for file in segment.files:
                size = store.size(f"_indices/{segment.uuid}/{file.path}")
                assert damaged or size == file.size_bytes, (path, file)
    return named


def every_version(uri: str) -> list[lance.LanceDataset]:
    """As pylance opens them, the newest last."""
    newest = lance.dataset(uri)
    known: Any = newest.versions()
    numbers = sorted(version["version"] for version in known)
    assert numbers[-1] == newest.version
    return [*(lance.dataset(uri, version=number) for number in numbers[:-1]), newest]


def named_data_files(versions: Sequence[lance.LanceDataset]) -> set[str]:
    """What all versions name, by pylance."""
    return {file.path for ds in versions for fragment in ds.get_fragments() for file in fragment.data_files()}


def check_recovery(uri: str, before: Contents, scenario: Scenario) -> int:
    """After a crash: as before, the job runs again, and orphans go without taking anything along. Returns how many
    there were. What the job did is checked after that: orphans cannot make up for what a job left out.

    A table that has its old files and versions answers as before: those that scenarios start from are checked once."""
    if not before.are_those_of(uri):
        check(uri, before, scenario)
    with warnings.catch_warnings(action="ignore" if scenario.damaged else "default"):
        scenario.run(pennon.open(uri))
    left = len(orphans(snapshot_of(uri)))
    assert len(delete_orphans(snapshot_of(uri), 0).deleted) == left
    there = {path.name for path in Path(uri, "_indices").iterdir()} if Path(uri, "_indices").exists() else set()
    assert there <= check_files(uri, damaged=scenario.damaged), "an orphan was overlooked"
    now = check(uri, before, scenario)
    assert {path.name for path in Path(uri, "data").iterdir()} == now.data_files
    return left


def index_contents(uri: str) -> dict[str, list[Any]]:
    """What the newest version's indices hold, without the names that differ from build to build: values and addresses
    of B-trees, codes and graphs of vector indices. Fragments count by their place: compactions give them random ids."""
    snapshot = snapshot_of(uri)
    places = {fragment: place for place, fragment in enumerate(sorted(snapshot.manifest.fragments))}
    held: dict[str, list[Any]] = {}
    for segment in snapshot.manifest.user_segments:
        tables = [
            _placed(LanceFile(snapshot.store, f"{segment.directory}/{file.path}").read(), places).to_pylist()
            for file in segment.files
            if not file.path.endswith("page_lookup.lance")
        ]
        held.setdefault(segment.name, []).append(sorted((sorted(map(str, table)) for table in tables), key=str))
    return {name: sorted(segments, key=str) for name, segments in held.items()}


def _placed(table: pa.Table, places: Mapping[int, int]) -> pa.Table:
    for at, name in enumerate(table.column_names):
        if name in ("ids", "_rowid"):
            addresses = [(places.get(id >> 32, id >> 32), id & 0xFFFFFFFF) for id in table[name].to_pylist()]
            table = table.set_column(at, name, pa.array([f"{place}:{offset}" for place, offset in addresses]))
    return table
