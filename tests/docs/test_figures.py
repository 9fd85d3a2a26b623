"""The figures of the pages are those of bench/results."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bench import readme
from bench.harness import cpu_name
from bench.timing import TURNS, Timing, interleaved
from tests.docs.pages import ROOT

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
UPDATE = bool(os.environ.get("PENNON_DOCS_UPDATE"))

_INCLUDED = re.compile(r"<!-- from: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


def body(result: Path) -> str:
    """A result with its title as a line of text, and with smaller headings."""
    text = re.sub(r"^##", "###", result.read_text("utf-8").strip("\n"), flags=re.MULTILINE)
    return re.sub(r"\A# (.*)", r"**\1**", text)


def test_the_page_holds_every_result_as_it_is() -> None:
    page = PAGE.read_text("utf-8")
    included = dict(_INCLUDED.findall(page))
    assert set(included) == {path.name for path in RESULTS.glob("*.md")}
    if UPDATE:
        renewed = _INCLUDED.sub(lambda m: f"<!-- from: {m[1]} -->\n\n{body(RESULTS / m[1])}\n\n<!-- end -->", page)
        PAGE.write_text(renewed, "utf-8")
    for name, text in _INCLUDED.findall(PAGE.read_text("utf-8")):
        assert text.strip("\n") == body(RESULTS / name), f"docs/performance.md has other figures than {name}"


def test_the_table_of_the_readme_is_made_from_the_results() -> None:
    if UPDATE:
        readme.main()
    [shown] = readme.MARKED.findall(README.read_text("utf-8"))
    assert shown.strip("\n") == readme.table().strip("\n"), "run `python -m bench.readme`"
    assert len(readme.FIGURES) >= 8


def test_cells_have_the_unit_before_the_spread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "| column | rows | pylance s | Pennon s | speed-up |\n|---|---|---|---|---|\n"
    text += "| x | 10 | 2.00 (1.90 to 2.10) | 1.00 (0.90 to 1.30) | 2.00 (1.80 to 2.20) |\n\n"
    (tmp_path / "build_int64.md").write_text(text + "Measured 2026-01-01 on A CPU, 2 cores, Python 3.11.7, numpy 1.\n")
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    figure = readme.Figure("y", "build_int64", "x", "pylance s", "Pennon s", "speed-up")
    monkeypatch.setattr(readme, "FIGURES", (figure,))
    found = readme.table()
    assert "| y | 2.00 s (1.90 to 2.10) | 1.00 s (0.90 to 1.30) | 2.00 (1.80 to 2.20) |" in found
    assert "Measured on A CPU, 2 cores." in found
    assert "older" not in found


def test_timings_keep_the_median_and_the_spread() -> None:
    theirs, ours = Timing((4.0, 2.0, 3.0, 9.0, 3.0)), Timing((2.0, 1.0, 3.0, 3.0, 1.0))
    assert f"{theirs:.1f}" == "3.0 (2.0 to 9.0)"
    assert theirs.over(ours).turns == (2.0, 2.0, 1.0, 3.0, 3.0)
    assert f"{theirs.per_second(12):.1f}" == "4.0 (1.3 to 6.0)"


def test_contestants_take_turns() -> None:
    order: list[str] = []
    taken = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")})
    assert "".join(order) == "ab" * TURNS
    assert (TURNS >= 5, [len(timing.turns) for timing in taken.values()]) == (True, [TURNS, TURNS])


def test_results_name_the_processor() -> None:
    assert re.search(r"[A-Za-z]", cpu_name())


@pytest.mark.parametrize("page", ["create-index.md", "scan.md", "spark.md", "knn-join.md", "search.md"])
def test_pages_point_to_the_figures_instead_of_repeating_them(page: str) -> None:
    assert "speed-up" not in (ROOT / "docs" / page).read_text("utf-8")
