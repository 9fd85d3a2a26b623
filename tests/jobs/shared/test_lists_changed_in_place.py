"""pylance reports a list that changes in place by the id of its elements, and leaves the fragment to an index on the
list, whose files hold the old values. Pennon does not use what was changed, and puts it right."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import CompactionWarning, CoverageWarning
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.shared.changes import SegmentChange
from pennon.jobs.shared.commit import commit_change
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")

FILTERS = ("array_has(l, 'new')", "array_has(l, 'old')", "array_has_any(l, ['odd', 'new'])")


@pytest.fixture(params=[False, True], ids=["ordinary", "stable row ids"])
def uri(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    uri = str(tmp_path / "t.lance")
    ids = np.arange(200)
    data = pa.table({"id": ids, "l": pa.array([["old", "odd" if i % 2 else "even"] for i in ids])})
    lance.write_dataset(data, uri, max_rows_per_file=50, enable_stable_row_ids=request.param)
    pennon.open(uri).create_index("l", "LABEL_LIST")
    return uri


def change_in_place(uri: str, fragment: int = 1) -> None:
    dataset = lance.dataset(uri)
    found: Any = dataset.get_fragment(fragment)
    ids = found.to_table(columns=["id"])["id"]
    values = pa.table({"id": ids, "l": pa.array([["new"]] * len(ids))})
    metadata, modified = found.update_columns(values, left_on="id", right_on="id")
    operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=modified)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def wrong(uri: str) -> list[str]:
    """Who answers a filter otherwise than a scan."""
    table, found = pennon.open(uri), list[str]()
    for filter in FILTERS:
        expected = full_scan(uri, filter)
        if sorted(table.scan(filter, ["id"])["id"].to_pylist()) != expected:
            found.append(f"pennon: {filter}")
        if stock_answer(uri, filter)[0] != expected:
            found.append(f"pylance: {filter}")
    return found


def test_what_changed_is_scanned(uri: str) -> None:
    change_in_place(uri)
    assert wrong(uri) == [f"pylance: {filter}" for filter in FILTERS]
    [index] = pennon.open(uri).indices()
    assert index.coverage == 0.75


@pytest.mark.parametrize("heal", ["audit", "optimize", "maintain"])
def test_it_is_found_and_put_right_for_pylance_too(uri: str, heal: str) -> None:
    change_in_place(uri)
    table = pennon.open(uri)
    report = table.audit()
    assert [finding.severity for finding in report.findings] == ["error"]
    assert "1 fragment (1) whose column was changed in place since" in report.findings[0].problem
    if heal == "audit":
        assert table.audit(repair=True).ok
    elif heal == "optimize":
        table.optimize_indices()
    else:
        table.maintain()
    assert wrong(uri) == []
    assert [index.coverage for index in pennon.open(uri).indices()] == [1.0]
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize("remap", ["immediate", "deferred", "drop"])
def test_a_compaction_does_not_take_old_values_along(uri: str, remap: str) -> None:
    change_in_place(uri)
    table = pennon.open(uri)
    stable = Snapshot.open(Location.of(uri)).manifest.has_stable_row_ids
    if stable and remap == "deferred":
        pytest.skip("refused on stable row ids")
    if remap == "drop" and not stable:
        table.compact(remap=remap)
    else:
        with pytest.warns(CompactionWarning, match=r"fragments \[0, 1, 2, 3\] .* changed in place; optimize it first"):
            table.compact(remap=remap)
        assert len(lance.dataset(uri).get_fragments()) == 4
    table.optimize_indices()
    table.compact(remap=remap)
    assert len(lance.dataset(uri).get_fragments()) == 1
    assert wrong(uri) == []


def test_what_was_indexed_after_the_change_stays_covered(uri: str) -> None:
    """Also when the versions before it are gone."""
    change_in_place(uri)
    pennon.open(uri).optimize_indices()
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    assert [index.coverage for index in pennon.open(uri).indices()] == [1.0]
    assert wrong(uri) == []
    change_in_place(uri, 2)
    assert [index.coverage for index in pennon.open(uri).indices()] == [0.75]


def test_a_change_between_the_scan_and_the_commit_is_seen(uri: str) -> None:
    scanned = Snapshot.open(Location.of(uri))
    [segment] = scanned.manifest.user_segments
    change_in_place(uri)
    with pytest.warns(CoverageWarning, match="1 changed in place"):
        committed = commit_change(scanned, SegmentChange((segment,)))
    assert list(committed.manifest.user_segments[0].fragments) == [0, 2, 3]
    assert read_fragment_reuse(committed) is None
    assert wrong(uri) == []
