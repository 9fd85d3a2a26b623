"""Coverage that another writer gave to a B-tree beyond what its files can hold."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import pennon
from pennon.format.index_metadata import segments_from_proto
from pennon.format.pb import lance_pb2 as pb
from pennon.index.btree.segment_uuid import segment_uuid
from pennon.index.fragment_reuse.coverage import trusted_coverage, untrusted_coverage
from tests.support.manifests import edit_newest
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")

FILTER = "k = 3"


def rows(count: int, start: int) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "k": ids % 7, "other": np.zeros(count)})


def moved_by_an_older_pylance(path: Path, **options: int) -> str:
    """An update of another column, as pylance 13 and older commit it on stable row ids: the rows move to a new fragment
    and the tree is made to cover it."""
    uri = str(path)
    lance.write_dataset(rows(1000, 0), uri, max_rows_per_file=250, enable_stable_row_ids=True)
    pennon.open(uri).create_index("k", **options)
    lance.dataset(uri).update({"other": "other + 1"}, where="id < 200")

    def cover_it_all(manifest: pb.Manifest, indices: pb.IndexSection) -> None:
        [index] = indices.indices
        index.fragment_bitmap = BitMap(fragment.id for fragment in manifest.fragments).serialize()

    edit_newest(path, cover_it_all)
    return uri


@pytest.mark.parametrize("ranges", [1, 3])
def test_it_is_not_believed(tmp_path: Path, ranges: int) -> None:
    uri = moved_by_an_older_pylance(tmp_path / "t.lance", ranges=ranges)
    expected = full_scan(uri, FILTER)
    assert len(stock_answer(uri, FILTER)[0]) < len(expected), "pylance 14 finds too few"
    table = pennon.open(uri)
    assert sorted(table.scan(FILTER, ["id"])["id"].to_pylist()) == expected
    [index] = table.indices()
    assert [list(segment.fragments) for segment in index.segments] == [[0, 1, 2, 3]]
    assert index.coverage == pytest.approx(0.8)


@pytest.mark.parametrize("merged", [0, 9])
def test_optimize_makes_it_true_for_stock_as_well(tmp_path: Path, merged: int) -> None:
    uri = moved_by_an_older_pylance(tmp_path / "t.lance")
    table = pennon.open(uri)
    table.optimize_indices(num_indices_to_merge=merged)
    [index] = table.indices()
    assert index.coverage == 1.0
    expected = full_scan(uri, FILTER)
    assert sorted(table.scan(FILTER, ["id"])["id"].to_pylist()) == expected
    assert stock_answer(uri, FILTER)[0] == expected


def test_audit_reports_and_repairs_it(tmp_path: Path) -> None:
    uri = moved_by_an_older_pylance(tmp_path / "t.lance")
    table = pennon.open(uri)
    [finding] = [finding for finding in table.audit().findings if "newer than its files" in finding.problem]
    assert finding.severity.value == "error"
    table.audit(repair=True)
    assert not [finding for finding in table.audit().findings if finding.severity.value == "error"]
    assert stock_answer(uri, FILTER)[0] == full_scan(uri, FILTER)


def test_all_that_pennon_does_keeps_coverage(tmp_path: Path) -> None:
    """Nor does what stock's newest does: nothing such a job covers is doubted later."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(1000, 0), uri, max_rows_per_file=250, enable_stable_row_ids=True)
    table = pennon.open(uri)
    table.create_index("k", ranges=2)
    lance.write_dataset(rows(300, 1000), uri, mode="append")
    table.refresh()
    for job in (
        lambda: table.optimize_indices(num_indices_to_merge=0),
        lambda: table.optimize_indices(num_indices_to_merge=9),
        lambda: table.compact(target_rows_per_fragment=600),
        lambda: lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000),
    ):
        job()
        table.refresh()
        [index] = table.indices()
        assert index.coverage == 1.0
        assert not any(untrusted_coverage(segment) for segment in table._snapshot.manifest.segments)
        assert stock_answer(uri, FILTER)[0] == full_scan(uri, FILTER)


@pytest.mark.parametrize(("kind", "trusted"), [("BTree", {0, 1}), ("LabelList", {0, 1, 2, 3})])
def test_only_trees_record_a_limit_in_their_uuids(kind: str, trusted: set[int]) -> None:
    """Other kinds have an index version 1 as well, which means something else there."""
    section = pb.IndexSection()
    index = section.indices.add(name="i", index_version=1, fragment_bitmap=BitMap(range(4)).serialize())
    index.uuid.value = UUID(segment_uuid([0, 1])).bytes
    index.index_details.type_url = f"/lance.table.{kind}IndexDetails"
    [segment] = segments_from_proto(section)
    assert set(trusted_coverage(segment)) == trusted
    assert set(untrusted_coverage(segment)) == {0, 1, 2, 3} - trusted
