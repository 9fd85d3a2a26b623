"""Fixtures every test may use, and the count of what was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pennon.engine import SparkEngine
from tests.faults.in_process import in_process

_tried: Counter[str] = Counter()


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkEngine]:
    """One embedded Spark session for the whole run; tables attach to it by themselves."""
    attached = SparkEngine.attach()
    yield attached
    attached.stop()


@pytest.fixture
def process_engine() -> Iterator[None]:
    """Tables work in this process, where what is tested is not how work is distributed."""
    with in_process():
        yield


@pytest.fixture(scope="session")
def tally() -> Callable[[str, int], None]:
    """Counts what a test has tried, for the summary at the end: `tally("crashes", 12)`."""

    def count(what: str, number: int) -> None:
        _tried[what] += number

    return count


# Folders and modules whose tests start interpreters, JVMs or servers of their own.
PROCESSES = ("distributed", "docs", "engine", "faults", "secrets", "spark", "versions", "hostile", "hostile_names")
PROCESS_MODULES = ("test_cli", "test_concurrency", "test_object_store", "test_store_failures", "test_threads")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make check` leaves out what needs a Spark session or other processes; which tests those are follows from their
    fixtures and places."""
    for item in items:
        place = item.path.relative_to(Path(__file__).parent)
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if place.parts[0] in PROCESSES or place.name.startswith(PROCESS_MODULES):
            item.add_marker("process")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _tried:
        failed = len(terminalreporter.stats.get("failed", ())) + len(terminalreporter.stats.get("error", ()))
        terminalreporter.section(f"tried, {failed} tests failed" if failed else "tried, with nothing lost")
        for what, number in sorted(_tried.items()):
            terminalreporter.write_line(f"{number:>8,} {what}")
