"""An index that pylance builds on a column Pennon does not index, or in a layout Pennon does not read, is not damaged.
It is skipped for a stated reason, and the upkeep of the table's other indices goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.pb import lance_pb2 as pb
from pennon.jobs.maintain import MaintenancePolicy
from pennon.report.facts import collect
from pennon.testing.engines import in_process
from tests.support.manifests import edit_newest

DIM = 8
QUERY = np.linspace(-1, 1, DIM).astype(np.float32)


def rows(count: int, start: int) -> pa.Table:
    items = np.random.default_rng(start).standard_normal((count, DIM)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(items.reshape(-1), DIM)
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "k": ids % 7,
            "vector": vectors,
            "matrix": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, DIM // 2]), vectors),
            "flag": pa.ExtensionArray.from_storage(pa.bool8(), pa.array(ids % 2, pa.int8())),
        }
    )


def index_older_layout(uri: str) -> None:
    lance.dataset(uri).create_index(
        "vector", "IVF_PQ", name="x", num_partitions=2, num_sub_vectors=4, index_file_version="LEGACY"
    )


def index_matrix(uri: str) -> None:
    """pylance refuses to build one on two dimensions today; the same values are in another column."""
    dataset = lance.dataset(uri).create_index("vector", "IVF_PQ", name="x", num_partitions=2, num_sub_vectors=4)
    field = next(f for f in dataset.lance_schema.fields() if f.name() == "matrix").id()

    def move(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].fields[:] = [field]

    edit_newest(Path(uri), move)


def index_flag(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("flag", "BTREE", name="x")


def nearest(column: str, query: Any) -> Callable[[str, bool], list[int]]:
    """The nearest rows, measured exactly among all candidates of the index."""

    def ask(uri: str, with_index: bool) -> list[int]:
        asked = {"column": column, "q": query, "k": 5, "nprobes": 2, "refine_factor": 200, "use_index": with_index}
        found = lance.dataset(uri).to_table(nearest=asked, columns=["id", "_distance"])
        return found["id"].to_pylist()

    return ask


def flagged(uri: str, with_index: bool) -> list[int]:
    found = lance.dataset(uri).scanner(filter="flag = 1", columns=["id"], use_scalar_index=with_index).to_table()
    return sorted(found["id"].to_pylist())


@dataclass(frozen=True)
class Case:
    build: Callable[[str], None]
    ask: Callable[[str, bool], list[int]]
    reason: str


CASES = {
    "two-dimensional tensor": Case(index_matrix, nearest("matrix", QUERY), r"does not support such an index on"),
    "older layout": Case(index_older_layout, nearest("vector", QUERY), "older layout"),
    "B-tree on bool8": Case(index_flag, flagged, "does not support such an index on columns of type .*bool8"),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def uri(tmp_path: Path, case: Case) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(600, 0), uri, max_rows_per_file=200)
    case.build(uri)
    with in_process():
        pennon.open(uri).create_index("k")
    lance.write_dataset(rows(100, 600), uri, mode="append")
    return uri


def step_of(table: pennon.Table, name: str) -> Any:
    return next(step for step in table.plan_optimize().steps if step.name == name)


def entry(uri: str) -> list[str]:
    return [s.uuid for s in pennon.open(uri)._snapshot.manifest.segments if s.name == "x"]  # pyright: ignore[reportPrivateUsage]


def covered_rows(uri: str) -> int:
    """Live rows that pylance's view of the index covers."""
    dataset = lance.dataset(uri)
    [index] = [each for each in dataset.describe_indices() if each.name == "x"]
    covered = set().union(*(segment.fragment_ids for segment in index.segments))
    return sum(f.count_rows() for f in dataset.get_fragments() if f.fragment_id in covered)


@pytest.mark.parametrize("remap", ["immediate", "deferred", "drop"])
def test_other_indices_are_kept_up(uri: str, case: Case, remap: str) -> None:
    built = entry(uri)
    with in_process():
        table = pennon.open(uri)
        table.optimize_indices()
        lance.dataset(uri).delete("id % 5 = 0")
        table.refresh()
        covered = covered_rows(uri)
        table.compact(remap=remap)
        assert covered_rows(uri) == (0 if remap == "drop" else covered)
        table.catch_up_indices()
        table.trim_fragment_reuse()
        table.optimize_indices()
        assert {index.name: index.coverage for index in table.indices()}["k_idx"] == 1.0
        assert table.count("k = 3") == lance.dataset(uri).count_rows("k = 3")
        assert table.audit().ok
    assert covered_rows(uri) == (0 if remap == "drop" else covered)
    assert entry(uri) == built
    assert case.ask(uri, True) == case.ask(uri, False)


def test_maintain_does_the_rest_and_names_what_it_skips(uri: str, case: Case) -> None:
    with in_process():
        table = pennon.open(uri)
        report = table.maintain(MaintenancePolicy(min_fragments_to_compact=None))
        [optimized] = [decision for decision in report.decisions if decision.step == "optimize"]
        assert "1 index optimized" in optimized.outcome
        assert "x: skipped" in optimized.reason
        [idle] = [d for d in table.maintain(dry_run=True).decisions if d.step == "optimize"]
        assert (idle.due, "x: skipped" in idle.reason) == (False, True)
    assert case.ask(uri, True) == case.ask(uri, False)


def test_the_plan_says_why_it_is_skipped(uri: str, case: Case) -> None:
    table = pennon.open(uri)
    step = step_of(table, "x")
    assert (step.due, step.skipped, step.to_dict()["action"]) == (False, True, "skip")
    assert re.search(case.reason, step.reason)
    assert step_of(table, "k_idx").due


def test_an_audit_notes_it_and_repairs_nothing(uri: str, case: Case) -> None:
    with in_process():
        table = pennon.open(uri)
        table.optimize_indices()
        report = table.audit()
        mine = [finding for finding in report.findings if finding.index == "x"]
        assert [finding.severity.value for finding in mine] == ["note"]
        assert "not audited" in mine[0].problem
        before = table.version
        repaired = table.audit(repair=True)
        assert (repaired.ok, repaired.repaired, table.version) == (True, (), before)


def test_explain_says_why_it_is_skipped(uri: str, case: Case) -> None:
    table = pennon.open(uri)
    if "older" in case.reason:
        explained = table.explain_search("vector", QUERY.tolist(), k=5)
        assert table.search("vector", QUERY.tolist(), k=5)["id"].to_pylist() == case.ask(uri, False)
    else:
        explained = table.explain("k = 3 AND flag = 1")
    [skipped] = [each for each in explained.skipped if each.index == "x"]
    assert re.search(case.reason, skipped.reason)
    assert skipped.reason in str(explained)


def test_the_report_does_not_call_it_damaged(uri: str, case: Case) -> None:
    snapshot = pennon.open(uri)._snapshot  # pyright: ignore[reportPrivateUsage]
    [facts] = [index for index in collect(snapshot).indices if index.name == "x"]
    assert (facts.foreign, [segment.damaged for segment in facts.segments]) == (True, [False])
    assert re.search(case.reason, facts.segments[0].problem or "")


def test_deferred_moves_stay_as_long_as_its_files_need_them(uri: str, case: Case) -> None:
    with in_process():
        table = pennon.open(uri)
        table.optimize_indices()
        table.compact(remap="deferred")
        assert table.catch_up_indices().segments_written
        assert table.trim_fragment_reuse().versions_removed == 0
        notes = [f for f in table.audit().findings if "cannot rewrite" in f.problem]
        assert [finding.segments for finding in notes] == [tuple(entry(uri))]
    assert case.ask(uri, True) == case.ask(uri, False)


def test_the_older_layout_is_known_by_the_file_where_the_manifest_lists_none(tmp_path: Path) -> None:
    """As pylance left it before manifests listed the files of a segment; its next commit of any kind adds the list."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(600, 0), uri, max_rows_per_file=200)
    index_older_layout(uri)
    ask = nearest("vector", QUERY)

    def forget(_: pb.Manifest, indices: pb.IndexSection) -> None:
        for index in indices.indices:
            del index.files[:]

    edit_newest(Path(uri), forget)
    with in_process():
        table = pennon.open(uri)
        assert "older layout" in step_of(table, "x").reason
        assert table.search("vector", QUERY.tolist(), k=5)["id"].to_pylist() == ask(uri, False)
        assert "older layout" in str(table.explain_search("vector", QUERY.tolist(), k=5))
        assert table.audit(repair=True).ok
        covered = covered_rows(uri)
        table.compact()
        assert covered_rows(uri) == covered
    assert ask(uri, True) == ask(uri, False)
