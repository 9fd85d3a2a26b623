"""Branches and shallow clones: tables whose data, deletion and index files are partly those of another table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedIndexWarning, DamagedTable, InvalidArgument, UnsupportedTable
from pennon.format.manifest import find_manifest, parse_manifest
from pennon.format.pb import lance_pb2 as pb
from pennon.format.store import Location, open_store
from pennon.index.vector.vectors import to_lists
from tests.support.faulty_store import FaultyStore
from tests.support.manifests import edit_newest

pytestmark = pytest.mark.usefixtures("process_engine")

FILTERS = ["k = 5", "k > 90 or k is null", "id < 100", "k < 10 and id > 700"]
QUERY = np.linspace(-1, 1, 8, dtype=np.float32)
MADE = ["branch", "clone", "clone of a branch"]


def rows(start: int, stop: int) -> pa.Table:
    count = stop - start
    vectors = np.random.default_rng(start).standard_normal((count, 8)).astype(np.float32)
    keys = [None if i % 50 == 0 else i % 97 for i in range(start, stop)]
    return pa.table({"id": range(start, stop), "k": pa.array(keys, pa.int64()), "v": to_lists(vectors)})


@dataclass(frozen=True)
class Family:
    """A table, and one that was made of it."""

    base: Path
    uri: str

    def table(self) -> pennon.Table:
        return pennon.open(self.uri)

    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)


def make_base(path: Path, *, stable: bool = False) -> lance.LanceDataset:
    """Eight fragments, six of them with deletions, a B-tree and an IVF_FLAT over all of them."""
    lance.write_dataset(rows(0, 2000), path, max_rows_per_file=250, enable_stable_row_ids=stable)
    lance.dataset(path).delete("id % 7 = 0 and id < 1500")
    table = pennon.open(path)
    table.create_index("k", batch_size=64)
    table.create_index("v", "IVF_FLAT", num_partitions=4)
    return lance.dataset(path)


def make(base: lance.LanceDataset, kind: str, directory: Path) -> str:
    clone = str(directory / "clone.lance")
    if kind == "branch":
        return base.create_branch("exp/one").uri
    if kind == "clone":
        base.shallow_clone(clone, base.version)
        return clone
    branch = base.create_branch("exp/one")
    branch.delete("id % 19 = 0")  # so that there are deletion files in both
    branch.shallow_clone(clone, branch.version)
    return clone


@pytest.fixture(params=MADE)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Family]:
    base = make_base(tmp_path / "base.lance")
    uri = make(base, request.param, tmp_path)
    before = contents(tmp_path / "base.lance", uri)
    yield Family(tmp_path / "base.lance", uri)
    assert contents(tmp_path / "base.lance", uri) == before, "the base has changed"
    check(str(tmp_path / "base.lance"), covered=True)


def contents(base: Path, made: str) -> dict[str, str]:
    """Every file of the base and its branches, but for those of the table made of it."""
    files = [path for path in base.rglob("*") if path.is_file() and not str(path).startswith(f"{made}/")]
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


def check(uri: str, *, covered: bool | None = None) -> None:
    """Pennon's answers, and pylance's through the indices, are those of a full scan."""
    dataset, table = lance.dataset(uri), pennon.open(uri)
    for filter in FILTERS:
        found = dataset.scanner(filter=filter, columns=["id"], use_scalar_index=False).to_table()
        expected = sorted(found["id"].to_pylist())
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
        assert sorted(dataset.scanner(filter=filter, columns=["id"]).to_table()["id"].to_pylist()) == expected, filter
    everything = dataset.to_table(columns=["id", "v"])
    vectors = np.stack(everything["v"].to_numpy())
    nearest = everything["id"].to_numpy()[((vectors - QUERY) ** 2).sum(axis=1).argsort()[:5]].tolist()
    assert table.search("v", QUERY, 5, nprobes=4, columns=["id"])["id"].to_pylist() == nearest
    asked = {"column": "v", "q": QUERY, "k": 5, "nprobes": 4}
    found = dataset.scanner(nearest=asked, columns=["id", "_distance"]).to_table()
    assert found["id"].to_pylist() == nearest
    if covered is not None:
        assert [index.coverage == 1 for index in table.indices()] == [covered] * 2


def grow(family: Family, start: int) -> None:
    """Rows that pylance appends and deletes on the branch or the clone alone."""
    family.dataset().delete(f"id % 11 = {start % 11} and id > 300")
    family.dataset().insert(rows(start, start + 200))


def in_base(table: pennon.Table) -> dict[str, list[bool]]:
    """By index, whether the files of each segment lie in another table."""
    found: dict[str, list[bool]] = {}
    for segment in table.refresh()._snapshot.manifest.user_segments:  # pyright: ignore[reportPrivateUsage]
        found.setdefault(segment.name, []).append(segment.base_id is not None)
    return found


def test_indices_of_the_base_are_used_where_they_lie(family: Family) -> None:
    check(family.uri, covered=True)
    table = family.table()
    assert in_base(table) == {"k_idx": [True], "v_idx": [True]}
    explained = table.explain("k = 5")
    assert not explained.skipped
    assert [use.index for use in explained.indices] == ["k_idx"]
    version = table.version
    assert table.audit().ok
    assert table.audit().rows_compared
    assert "k_idx" in table.report()
    assert not table.optimize_indices().plan.due
    assert table.catch_up_indices().segments_written == 0
    assert table.trim_fragment_reuse().versions_removed == 0
    assert table.refresh().version == version


def test_indices_of_the_base_are_merged_into_the_table(family: Family) -> None:
    grow(family, 5000)
    check(family.uri, covered=False)
    family.table().optimize_indices(num_indices_to_merge=0)
    check(family.uri, covered=True)
    assert in_base(family.table()) == {"k_idx": [True, False], "v_idx": [True, False]}
    family.table().optimize_indices(num_indices_to_merge=9)
    check(family.uri, covered=True)
    assert in_base(family.table()) == {"k_idx": [False], "v_idx": [False]}
    assert family.table().audit().ok


def test_own_indices_and_their_upkeep(family: Family) -> None:
    table = family.table()
    table.create_index("k", batch_size=64)
    table.create_index("v", "IVF_FLAT", num_partitions=4)
    check(family.uri, covered=True)
    grow(family, 5000)
    check(family.uri, covered=False)
    family.table().optimize_indices()
    check(family.uri, covered=True)
    family.table().compact(remap="immediate", target_rows_per_fragment=600)
    check(family.uri, covered=True)
    grow(family, 6000)
    family.table().optimize_indices()
    family.table().compact(remap="deferred", target_rows_per_fragment=900)
    check(family.uri, covered=True)
    assert family.table().catch_up_indices().segments_written > 0
    assert family.table().trim_fragment_reuse().versions_removed == 1
    check(family.uri, covered=True)
    grow(family, 7000)
    family.table().compact(remap="drop", target_rows_per_fragment=4000)
    check(family.uri, covered=False)
    family.table().maintain()
    check(family.uri, covered=True)
    assert family.table().audit().ok


Change = Callable[[pennon.Table], object]
CHANGES: dict[str, Change] = {
    "update_column": lambda table: table.update_column("k", "k + 1", where="id < 600"),
    "deferred": lambda table: table.compact(remap="deferred", target_rows_per_fragment=600),
    "drop": lambda table: table.compact(remap="drop", target_rows_per_fragment=600),
    "drop_index": lambda table: table.drop_index("k_idx"),
}
IMMEDIATE: dict[str, Change] = {
    "compact": lambda table: table.compact(remap="immediate", target_rows_per_fragment=600),
    "maintain": lambda table: table.maintain(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_beside_indices_of_the_base(family: Family, change: str) -> None:
    grow(family, 5000)
    CHANGES[change](family.table())
    check(family.uri)
    with suppress(UnsupportedTable):
        family.table().clean_orphans(timedelta(0), no_jobs_running=True)
    check(family.uri)


@pytest.mark.parametrize("change", IMMEDIATE)
def test_indices_of_the_base_follow_a_compaction_into_the_table(family: Family, change: str) -> None:
    """pylance, compacting the same table at once, leaves entries whose files it looks for in the base."""
    family.dataset().delete("id % 11 = 5 and id > 300")
    IMMEDIATE[change](family.table())
    check(family.uri, covered=True)
    assert in_base(family.table()) == {"k_idx": [False], "v_idx": [False]}
    assert family.table().fragment_reuse() is None
    assert family.table().audit().ok


@pytest.mark.parametrize("change", IMMEDIATE)
def test_indices_of_the_base_lose_nothing_beside_new_rows(family: Family, change: str) -> None:
    grow(family, 5000)
    covered = covered_rows(family.table())
    IMMEDIATE[change](family.table())
    check(family.uri)
    assert all(now >= before for now, before in zip(covered_rows(family.table()), covered, strict=True))
    assert family.table().audit().ok


def covered_rows(table: pennon.Table) -> list[float]:
    return [index.coverage * table.count() for index in table.indices()]


def test_a_branch_stays_one(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base.lance")
    uri = base.create_branch("exp").uri
    table = pennon.open(uri)
    table.create_index("k")
    table.update_column("k", "k + 1", where="id < 300")
    base = lance.dataset(tmp_path / "base.lance")
    assert base.checkout_version(("exp", None)).version == table.version > base.version
    assert base.branches.list()["exp"]["parent_version"] == base.version


def test_a_segment_beside_one_of_the_base_that_holds_old_values_is_refused(family: Family) -> None:
    family.table().update_column("k", "k + 1", where="id < 200")
    with pytest.raises(InvalidArgument, match="still holds their old values"):
        family.table().create_index("k", fragment_ids=[0], replace=False)
    family.dataset().insert(rows(5000, 5200))
    family.table().create_index("k", fragment_ids=[max(f.fragment_id for f in family.dataset().get_fragments())])
    check(family.uri)


def test_moves_in_a_file_of_the_base(tmp_path: Path) -> None:
    """Many moves are too large for the manifest."""
    base, clone, count = tmp_path / "base.lance", str(tmp_path / "clone.lance"), 1_800_000
    lance.write_dataset(pa.table({"id": pa.array(np.arange(count, dtype=np.int32))}), base)
    pennon.open(base).create_index("id")
    lance.dataset(base).delete("id % 2 = 0")
    pennon.open(base).compact(remap="deferred")
    assert list(base.glob("_indices/*/details.binpb"))
    dataset = lance.dataset(base)
    dataset.shallow_clone(clone, dataset.version)
    table = pennon.open(clone)
    assert table.count("id < 1000") == 500
    assert len(table.fragment_reuse().versions) == 1
    table.create_index("id")
    assert table.trim_fragment_reuse().versions_removed == 1
    assert (table.count("id < 1000"), pennon.open(base).count("id < 1000")) == (500, 500)


@pytest.mark.parametrize("kind", MADE)
def test_stable_row_ids(tmp_path: Path, kind: str) -> None:
    uri = make(make_base(tmp_path / "base.lance", stable=True), kind, tmp_path)
    family = Family(tmp_path / "base.lance", uri)
    check(uri)
    grow(family, 5000)
    check(uri)
    family.table().compact(remap="drop", target_rows_per_fragment=600)
    check(uri)
    family.table().create_index("k")
    family.table().create_index("v", "IVF_FLAT", num_partitions=4)
    check(uri, covered=True)
    family.table().compact(remap="immediate", target_rows_per_fragment=1200)
    check(uri, covered=True)
    check(str(family.base), covered=True)


def test_orphans_of_the_base_are_not_what_branches_use(tmp_path: Path) -> None:
    base = tmp_path / "base.lance"
    first = make_base(base).create_branch("one").uri
    pennon.open(first).create_index("k")
    second = lance.dataset(first).create_branch("two").uri
    for uri in (str(base), first):
        pennon.open(uri).create_index("k", batch_size=32)
        pennon.open(uri).create_index("v", "IVF_FLAT", num_partitions=2)
        lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
        with suppress(UnsupportedTable):
            pennon.open(uri).clean_orphans(timedelta(0), no_jobs_running=True)
    for uri in (str(base), first, second):
        check(uri)


def test_a_deletion_file_that_the_base_no_longer_has(tmp_path: Path) -> None:
    clone = make(make_base(tmp_path / "base.lance"), "clone", tmp_path)
    for path in (tmp_path / "base.lance/_deletions").iterdir():
        path.unlink()
    with pytest.raises(DamagedTable, match=r"base\.lance/_deletions/"):
        pennon.open(clone).count("k = 5")


@pytest.mark.parametrize("damage", ["absent", "not a table", "no address"])
def test_a_base_path_that_leads_nowhere(tmp_path: Path, damage: str) -> None:
    clone = make(make_base(tmp_path / "base.lance"), "clone", tmp_path)

    def edit(manifest: pb.Manifest, _: pb.IndexSection) -> None:
        paths = manifest.base_paths
        if damage == "absent":
            del paths[:]
        elif damage == "not a table":
            paths[0].is_dataset_root = False
        else:
            paths[0].path = "memory://nothing"

    edit_newest(Path(clone), edit)
    with (
        pytest.warns(DamagedIndexWarning, match="_idx' of .* is not used: its files are not read: base path 0"),
        pytest.raises(DamagedTable, match="base path 0"),
    ):
        pennon.open(clone).count("k = 5")


REFUSED = {
    "out of its directory": "{base}/../base.lance",
    "out of it, hidden": "{base}/%2e%2e/base.lance",
    "out of it, hidden twice": "{base}/%252e%252e/base.lance",
    "on another kind of store": "s3://bucket/base.lance",
    "on none": "memory://base.lance",
    "a web page": "https://example.com/base.lance",
}


@pytest.mark.parametrize("path", REFUSED.values(), ids=REFUSED)
def test_a_base_path_that_is_refused(tmp_path: Path, path: str) -> None:
    """Only the indices claim to lie elsewhere, and nothing is read there."""
    base = make_base(tmp_path / "base.lance")
    table = pennon.open(tmp_path / "base.lance")
    before = table.count("k = 5")

    def edit(manifest: pb.Manifest, indices: pb.IndexSection) -> None:
        manifest.base_paths.add(id=7, path=path.format(base=base.uri), is_dataset_root=True)
        for index in indices.indices:
            index.base_id = 7

    edit_newest(tmp_path / "base.lance", edit)
    table = pennon.open(tmp_path / "base.lance")
    with pytest.warns(DamagedIndexWarning, match="is not used: its files are not read: base path 7"):
        assert table.count("k = 5") == before
    assert [skipped.index for skipped in table.explain("k = 5").skipped] == ["k_idx", "v_idx"]
    version = table.version
    assert all(step.skipped for step in table.optimize_indices().plan.steps)
    found = table.audit().findings
    assert {finding.index for finding in found} == {"k_idx", "v_idx"}
    assert all("base path 7" in finding.problem for finding in found)
    assert "base path 7" in table.report()
    assert table.refresh().version == version


def test_a_base_on_an_object_store(tmp_path: Path) -> None:
    make_base(tmp_path / "base.lance")
    store = FaultyStore(tmp_path)
    try:
        opened = partial(lance.dataset, storage_options=store.options)
        dataset = opened("s3://bucket/base.lance")
        dataset.shallow_clone("s3://bucket/clone.lance", dataset.version, storage_options=store.options)
        content = open_store(Location.of("s3://bucket/clone.lance", store.options))
        manifest = parse_manifest(content.read(find_manifest(content)), "clone")
        assert manifest.base_paths[0].path == "s3://bucket/base.lance"
        table = pennon.open("s3://bucket/clone.lance", storage_options=store.options)
        expected = opened("s3://bucket/clone.lance").count_rows("k = 5")
        assert (table.count("k = 5"), pennon.open(tmp_path / "base.lance").count("k = 5")) == (expected, expected)
        assert table.explain("k = 5").indices
        opened("s3://bucket/clone.lance").delete("id % 11 = 5")
        expected = opened("s3://bucket/clone.lance").scanner(filter="k = 5", use_scalar_index=False).count_rows()
        table.refresh().compact(target_rows_per_fragment=4000)
        assert in_base(table) == {"k_idx": [False], "v_idx": [False]}
        assert [index.coverage for index in table.indices()] == [1, 1]
        assert table.count("k = 5") == opened("s3://bucket/clone.lance").count_rows("k = 5") == expected
    finally:
        store.close()
