"""Every job is ended at every point between its first file and its last: nothing is lost, and it runs again."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pennon
from tests.faults.in_process import in_process
from tests.faults.points import Death, Points, dying_at, watching
from tests.faults.scenarios import SCENARIOS, Contents, Scenario, check, check_recovery

# Of the points of a job the short form tries these: the first, the last, and every so many between.
STRIDE = 15


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with in_process():
        yield


def crash_everywhere(scenario: Scenario, directory: Path, stride: int) -> tuple[int, int, int]:
    """Points there are, points tried, and orphans that crashes left."""
    master = str(directory / "master.lance")
    scenario.prepare(master)
    before = Contents.of(master)
    undisturbed = copied(master, directory)
    points = Points()
    with watching(points), warnings.catch_warnings(action="ignore" if scenario.damaged else "default"):
        scenario.run(pennon.open(undisturbed))
    check(undisturbed, before, scenario)
    count = len(points.passed)
    assert count, "the job did nothing"
    tried = sorted({0, count - 1, *range(0, count, stride)})
    left = 0
    for number in tried:
        uri = copied(master, directory)
        with (
            watching(dying_at(number)),
            pytest.raises(Death),
            warnings.catch_warnings(action="ignore" if scenario.damaged else "default"),
        ):
            scenario.run(pennon.open(uri))
        try:
            left += check_recovery(uri, before, scenario)
        except BaseException as error:
            error.add_note(f"after a crash at point {number}: {points.passed[number]}")
            raise
    return count, len(tried), left


def copied(master: str, directory: Path) -> str:
    uri = directory / "t.lance"
    shutil.rmtree(uri, ignore_errors=True)
    shutil.copytree(master, uri)
    return str(uri)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_crash_at_some_points(scenario: Scenario, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    tally("crashes of driver and tasks together", crash_everywhere(scenario, tmp_path, STRIDE)[1])


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_crash_at_every_point(scenario: Scenario, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    count, tried, left = crash_everywhere(scenario, tmp_path, 1)
    assert tried == count
    tally("crashes of driver and tasks together", tried)
    tally("orphans of crashes found and removed", left)
