"""The page about versions has the table of what `make test-versions` runs, and the Makefile installs those versions."""

from __future__ import annotations

import re
from pathlib import Path

from tests.versions import sparks

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "versions.md").read_text("utf-8")
    [included] = re.findall(r"<!-- from: tests/versions/sparks.py -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert included.strip() == sparks.table(), "put the output of python -m tests.versions.sparks --table there"


def test_the_makefile_installs_these_versions() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    [others] = re.findall(r"^OTHERS := (.*)$", makefile, re.MULTILINE)
    installed = {name.removeprefix("pyspark-") for name in others.split() if name.startswith("pyspark-")}
    locked = re.findall(r"^pyspark\[?.*==([\d.]+)", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert {*installed, *locked} == set(sparks.VERSIONS)


def test_every_test_exists_and_old_versions_run_fewer() -> None:
    for version in sparks.VERSIONS:
        assert all((ROOT / test).exists() for test in sparks.tests_of(version))
    assert not any(test.startswith("tests/spark") for test in sparks.tests_of("3.5.9"))
    assert "tests/spark" not in sparks.tests_of("4.0.5")
