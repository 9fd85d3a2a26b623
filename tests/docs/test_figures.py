"""The figures of the pages are those of bench/results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
UPDATE = bool(os.environ.get("PENNON_DOCS_UPDATE"))

_INCLUDED = re.compile(r"<!-- from: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)

# The table of the README by the first cell of a row: the result file, and the first cell of the row there.
SOURCES = {
    "B-tree, random int64, 10,000,000 rows": ("build_int64.md", "random int64, 10,000,000 rows"),
    "B-tree, random int64, 100,000,000 rows": ("build_large.md", "random int64, 100,000,000 rows"),
    "B-tree, random 16-byte strings, 10,000,000 rows": ("build_strings.md", "random 16-byte strings"),
    "B-tree, `l_orderkey` of TPC-H, sorted already": ("build_lineitem.md", "lineitem.l_orderkey"),
    "point lookup in 10,000,000 rows, warm": ("points.md", "warm"),
    "the same, in a table just opened": ("points.md", "cold (table opened anew)"),
    "joining the lookups of 1,000 ranges, 10 billion rows": ("merge_lookups.md", "1000"),
    "IVF_PQ, 500,000 x 128, 512 partitions": ("vector-build.md", "IVF_PQ, 16 sub-vectors"),
    "IVF_SQ, the same": ("vector-build.md", "IVF_SQ"),
    "IVF_HNSW_SQ, the same": ("vector-build.md", "IVF_HNSW_SQ"),
    "1,000 searches in that IVF_SQ, recall 0.96": ("vector-search.md", "IVF_SQ"),
    "compaction of 10,000,000 rows with a B-tree, remapped at once": ("compact.md", "B-tree, 10,000,000 int64"),
}


def body(result: Path) -> str:
    """A result with its title as a line of text, and with smaller headings."""
    text = re.sub(r"^##", "###", result.read_text("utf-8").strip("\n"), flags=re.MULTILINE)
    return re.sub(r"\A# (.*)", r"**\1**", text)


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def numbers(cells: list[str]) -> list[float]:
    return [float(n.replace(",", "")) for cell in cells for n in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)]


def test_the_page_holds_every_result_as_it_is() -> None:
    page = PAGE.read_text("utf-8")
    included = dict(_INCLUDED.findall(page))
    assert set(included) == {path.name for path in RESULTS.glob("*.md")}
    if UPDATE:
        renewed = _INCLUDED.sub(lambda m: f"<!-- from: {m[1]} -->\n\n{body(RESULTS / m[1])}\n\n<!-- end -->", page)
        PAGE.write_text(renewed, "utf-8")
    for name, text in _INCLUDED.findall(PAGE.read_text("utf-8")):
        assert text.strip("\n") == body(RESULTS / name), f"docs/performance.md has other figures than {name}"


def test_the_table_of_the_readme_is_taken_from_the_results() -> None:
    table = [cells for cells in rows(README.read_text("utf-8")) if cells[0] in SOURCES]
    assert len(table) >= 8
    for cells in table:
        name, first = SOURCES[cells[0]]
        sources = [row for row in rows((RESULTS / name).read_text("utf-8")) if row[0] == first]
        known = [number for row in sources for number in numbers(row[1:])]
        for shown in re.findall(r"\d[\d,]*(?:\.\d+)?", " ".join(cells[1:])):
            digits = len(shown.partition(".")[2])
            value = float(shown.replace(",", ""))
            # Python rounds halves to even, people up.
            assert any(abs(number - value) <= 0.5 * 10**-digits + 1e-9 for number in known), f"{cells}: {shown}"


@pytest.mark.parametrize("page", ["create-index.md", "scan.md", "spark.md", "knn-join.md", "search.md"])
def test_pages_point_to_the_figures_instead_of_repeating_them(page: str) -> None:
    assert "speed-up" not in (ROOT / "docs" / page).read_text("utf-8")
