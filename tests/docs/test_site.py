"""The documentation builds without a warning, fetches nothing from elsewhere, and has every part it should have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.process

DOCS = ROOT / "docs"
OPERATIONS = (
    "audit",
    "compact",
    "create-index",
    "create-vector-index",
    "drop-index",
    "fragment-reuse",
    "indices",
    "knn-join",
    "maintain",
    "optimize",
    "report",
    "scan",
    "search",
    "search-text",
    "spark",
    "sql",
    "update-column",
)
PARTS = ("Syntax", "Options", "Example", "How it works", "Limits")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return target


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")}
    assert pages <= {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="?(?:https?:)?//[^>]*>')
    found = {page.name: loads.findall(page.read_text("utf-8")) for page in site.rglob("*.html")}
    assert not {name: tags for name, tags in found.items() if tags}


@pytest.mark.parametrize("page", OPERATIONS)
def test_a_page_of_an_operation_has_every_part(page: str) -> None:
    titles = re.findall(r"^## (.+)$", (DOCS / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    assert [title for title in PARTS if title not in titles] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 80


CHROMIUM = Path("/usr/bin/chromium")


@pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's Chromium is not installed")
@pytest.mark.parametrize("page", ["index.html", "reference/api.html"])
def test_search_works_in_a_site_that_is_opened_from_a_disk(site: Path, tmp_path: Path, page: str) -> None:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", f"file://{site / page}?q=zonemap"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    assert re.search(r'md-search-result__meta">\d+ matching documents?<', shown)
