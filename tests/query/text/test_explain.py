"""What a text search reports of itself."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.index.cache import SHARED_CACHE
from pennon.text import Boolean, Match, Occur, Phrase

pytestmark = pytest.mark.usefixtures("process_engine")

# One short document early, then long ones that cannot reach its score.
TEXTS = ["needle"] * 20 + ["needle " + "hay straw " * 40] * 3000


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(len(TEXTS)), "text": TEXTS}), path, max_rows_per_file=2000)
    pennon.open(path).create_index("text", "INVERTED", with_position=True)
    SHARED_CACHE.clear()
    return path


def test_terms_segments_and_scanned_fragments(uri: str) -> None:
    lance.write_dataset(pa.table({"id": [9000, 9001], "text": ["needles", None]}), uri, mode="append")
    plan = pennon.open(uri).explain_search_text("text", "needles straw", 5, filter="id < 10000")
    (column,) = plan.columns
    assert (column.index, dict(column.terms)) == ("text_idx", {"needl": 3020, "straw": 3000})
    assert [(segment.fragments, segment.partitions, segment.documents) for segment in column.segments] == [(2, 1, 3020)]
    assert (column.scanned_fragments, column.scanned_rows, plan.total_rows) == ((2,), 2, 3022)
    assert (column.blocks_read, plan.reads) == (None, None)
    text = str(plan)
    assert "query    Match('needles straw', 'text'); the best 5 matches" in text
    assert "terms    needl (3,020), straw (3,000)" in text
    assert "scan     1 fragment (2 rows): 2" in text
    assert "filter   id in {(, 9999]}" in text
    assert plan.to_dict()["columns"][0]["index"] == "text_idx"


def test_a_run_reports_blocks_that_it_read_and_skipped(uri: str) -> None:
    table = pennon.open(uri)
    cold = table.explain_search_text("text", "needle", 10, analyze=True)
    (column,) = cold.columns
    assert (column.blocks_read, column.blocks_skipped) == (1, 23)
    assert (cold.rows_returned, column.rows_read) == (10, 0)
    assert cold.reads is not None
    assert cold.reads > 0
    warm = table.explain_search_text("text", "needle", 10, analyze=True)
    assert warm.reads == 0
    assert "blocks   1 read, 23 skipped" in str(warm)
    lance.write_dataset(pa.table({"id": [9000], "text": ["needle"]}), uri, mode="append")
    ran = table.refresh().explain(full_text="needle", analyze=True)
    assert (ran.k, ran.rows_returned) == (None, 3021)
    assert (ran.columns[0].terms, ran.columns[0].rows_read) == ({"needl": 3021}, 1)


def test_a_column_without_an_index(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1], "text": ["Needle"]}), path)
    plan = pennon.open(path).explain_search_text("text", "Needle", analyze=True)
    assert "no index; words are compared as they are written" in str(plan)
    assert plan.columns[0].terms == {"Needle": 1}


def test_composed_queries_are_shown_as_they_are_written(uri: str) -> None:
    query = Boolean([(Occur.MUST, Match("hay", boost=2.0)), (Occur.MUST_NOT, Phrase("needle hay", slop=1))])
    plan = pennon.open(uri).explain_search_text("text", query)
    assert plan.query == "Boolean(must Match('hay', 'text', boost=2.0), must_not Phrase('needle hay', 'text', slop=1))"
    assert dict(plan.columns[0].terms) == {"hay": 3000, "needl": 3020}
