"""Every example of the README and of the pages runs as written, and prints what the page shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pennon.cli.render import console
from pennon.jobs.shared import placement
from tests.docs.compare import agree
from tests.docs.pages import PAGES, ROOT, Block, blocks, replace, starts_from
from tests.docs.running import PageRun

pytestmark = pytest.mark.usefixtures("engine")

TOUR = ROOT / "docs" / "tour.md"
# With this variable set, outputs that no longer agree are written into the pages instead of reported.
UPDATE = bool(os.environ.get("PENNON_DOCS_UPDATE"))


# Pages that show what Spark does, and those that run every verb. The others run as for a reader: small tables need no
# Spark. On Spark, they are `heavy`.
ON_SPARK = (
    *("README", "tour", "cli", "spark", "sql", "streams", "knn-join", "lookup-join"),
    *("create-index", "create-vector-index", "merge", "optimize", "update-column"),
    *("audit", "compact", "fragment-reuse", "near-duplicates", "search-text", "upsert"),
)
RUNS = [
    *(pytest.param(page, page.stem in ON_SPARK, id=page.stem) for page in PAGES),
    *(
        pytest.param(page, True, id=f"{page.stem}, on Spark", marks=pytest.mark.heavy)
        for page in PAGES
        if page.stem not in ON_SPARK
    ),
]


@pytest.fixture(scope="session")
def beginnings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What pages start from: nothing, the tables that the tour writes first, or these with the indices it builds."""
    nothing, tables, indices = (tmp_path_factory.mktemp(name) for name in ("nothing", "tables", "indices"))
    write, build = [block for block in blocks(TOUR) if block.language == "python"][:2]
    PageRun(tables).run(write)
    shutil.copytree(tables, indices, dirs_exist_ok=True)
    run = PageRun(indices)
    run.run(build)
    assert run.error is None
    return {"nothing": nothing, "tables": tables, "indices": indices}


@pytest.mark.parametrize(("page", "on_spark"), RUNS)
def test_a_page(
    page: Path, on_spark: bool, beginnings: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(blocks(page))
    if not any(block.runs for block in found):
        return
    if not on_spark:
        monkeypatch.delenv(placement.VARIABLE)
    shutil.copytree(beginnings[starts_from(page)], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "_width", 120)
    run = PageRun(tmp_path)
    output, changes = "", list[tuple[Block, str]]()
    for number, block in enumerate(found):
        where = f"{page.name}, line {block.begin}"
        if block.runs:
            try:
                output = run.run(block)
            except AssertionError as error:
                pytest.fail(f"{where}: {error}", pytrace=False)
            if block.language == "console":
                _check(where, block, output, changes)
            elif not (number + 1 < len(found) and found[number + 1].is_output):
                assert run.error is None, f"{where}: {run.error}"
        elif block.is_output:
            _check(where, block, output, changes)
    if changes:
        replace(page, changes)


def _check(where: str, block: Block, output: str, changes: list[tuple[Block, str]]) -> None:
    if agree(block.text, output):
        return
    if UPDATE:
        changes.append((block, "\n".join(line.rstrip() for line in output.strip("\n").split("\n"))))
    else:
        pytest.fail(f"{where} shows\n{block.text}\nand a run prints\n{output}", pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    ran = False
    for block in blocks(page):
        ran = ran or block.runs
        known = block.runs or block.mark is not None or (block.is_output and ran)
        assert known, f"{page.name}, line {block.begin}: neither run nor marked, ```{block.language}"


@pytest.mark.parametrize(
    ("shown", "actual", "same"),
    [
        ("a  1", "a 1\n", True),
        ("a 1", "a 2", False),
        ("12.0 s, 3 rows", "0.4 s, 3 rows", True),
        ("12.0 s, 3 rows", "0.4 s, 4 rows", False),
        ("x 0.12345", "x 0.12346", True),
        ("x 0.12", "x 0.15", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("a", "", False),
    ],
)
def test_outputs_are_compared_but_for_what_varies(shown: str, actual: str, same: bool) -> None:
    compare: Callable[[str, str], bool] = agree
    assert compare(shown, actual) is same
