"""What a search says of itself."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import pennon
from pennon.index.cache import SHARED_CACHE
from tests.support.neighbors import index, queries, rows, write

QUERY = queries(1)[0]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = write(tmp_path / "t.lance", rows(1200))
    index(path, "IVF_SQ", partitions=8)
    SHARED_CACHE.clear()
    return path


def test_a_plan_reads_no_partition(uri: str) -> None:
    plan = pennon.open(uri).explain_search("v", QUERY, 5, nprobes=3)
    (segment,) = plan.segments
    assert (plan.index, plan.metric, segment.kind) == ("x", "l2", "IVF_SQ")
    assert (segment.partitions, segment.probed, segment.fragments) == (8, 3, 3)
    assert 0 < segment.rows < 1200
    assert plan.reads is None
    text = str(plan)
    assert "index    x; 3 partitions of each segment" in text
    assert f"3 of 8 partitions of IVF_SQ, {segment.rows:,} rows" in text
    assert plan.to_dict()["segments"][0]["probed"] == 3
    assert pennon.open(uri).explain(column="v", query=QUERY, k=5, nprobes=3) == plan


def test_a_run_tells_what_it_touched(uri: str) -> None:
    table = pennon.open(uri)
    cold = table.explain_search("v", QUERY, 5, nprobes=3, analyze=True)
    assert (cold.reads, cold.segments[0].loaded, cold.rows_returned) == (5, 3, 5)  # centroids, runs, partitions
    assert cold.rows_scored == cold.segments[0].rows == table.explain_search("v", QUERY, 5, nprobes=3).segments[0].rows
    warm = table.explain_search("v", QUERY, 5, nprobes=3, analyze=True)
    assert (warm.reads, warm.segments[0].loaded) == (0, 0)
    assert warm.rows_measured == 0
    assert "0 index reads" in str(warm)


def test_deltas_uncovered_fragments_refining_and_filters(uri: str) -> None:
    lance.write_dataset(rows(200, 1200, seed=1), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(rows(50, 1400, seed=2), uri, mode="append")
    lance.dataset(uri).create_scalar_index("part", "BTREE")
    plan = pennon.open(uri).explain_search("v", QUERY, 5, refine_factor=4, filter="part < 8 and word = 'w1'")
    assert [segment.partitions for segment in plan.segments] == [8, 8]
    assert plan.measured_fragments == (4,)
    assert (plan.measured_rows, plan.total_rows, plan.remeasured) == (50, 1450, 20)
    assert plan.filter is not None
    assert [use.index for use in plan.filter.indices] == ["part_idx"]
    text = str(plan)
    assert "8 partitions of each segment, more while there are fewer than 5 results or too few selected rows" in text
    assert "measure  1 fragment (50 of 1,450 rows): 4" in text
    assert "refine   20 candidates" in text
    assert "part_idx: part in {(, 7]}" in text
    ran = pennon.open(uri).explain_search("v", QUERY, 5, filter="part < 8", analyze=True)
    assert ran.filter is not None
    assert (ran.filter.rows_selected, ran.filter.few, ran.rows_measured) == (1120, False, 40)
    assert ran.rows_scored == 1120
    few = pennon.open(uri).explain_search("v", QUERY, 5, filter="id < 30", analyze=True)
    assert few.rows_measured == 30
    assert "30 covered rows selected, all of them measured" in str(few)


def test_a_search_without_index(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(300))
    plan = pennon.open(uri).explain_search("v", QUERY, analyze=True)
    assert (plan.index, plan.segments, plan.measured_rows, plan.remeasured) == (None, (), 300, 0)
    assert plan.rows_measured == 300
    assert "measure  3 fragments (300 of 300 rows): 0, 1, 2" in str(plan)
