"""Every job is ended at every point between its first file and its last: nothing is lost, and it runs again."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest
from lance.fragment import write_fragments

import pennon
from pennon.errors import PennonError
from pennon.format.cleanup import OrphanKind, delete_orphans, orphans
from pennon.testing.engines import in_process
from tests.faults.points import Death, Points, dying_at, failing_at, watching
from tests.faults.scenarios import (
    SCENARIOS,
    Contents,
    Scenario,
    check,
    check_files,
    check_recovery,
    every_version,
    named_data_files,
    rows,
    snapshot_of,
)

# The short form tries the first point of a job, the last, and every 15th between; `make check` fewer.
STRIDE = int(os.environ.get("PENNON_CRASH_STRIDE", "15"))


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with in_process():
        yield


class Masters:
    """Tables that scenarios start from, and the points of their jobs, made once for all tests of a process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tables: dict[Callable[[str], None], tuple[str, Contents]] = {}
        self._points: dict[str, list[str]] = {}

    def copy(self, scenario: Scenario, directory: Path) -> tuple[str, Contents]:
        """A table for one run of the job, in place of one that an earlier run left, and what it holds."""
        if scenario.prepare not in self._tables:
            master = str(self._directory / f"{len(self._tables)}.lance")
            scenario.prepare(master)
            self._tables[scenario.prepare] = master, Contents.of(master)
            check(*self._tables[scenario.prepare], scenario)
        master, before = self._tables[scenario.prepare]
        uri = directory / "t.lance"
        shutil.rmtree(uri, ignore_errors=True)
        shutil.copytree(master, uri)
        return str(uri), before

    def points(self, scenario: Scenario, directory: Path) -> list[str]:
        """What the job passes when nothing disturbs it."""
        if scenario.name not in self._points:
            uri, before = self.copy(scenario, directory)
            points = Points()
            with watching(points), quiet(scenario):
                scenario.run(pennon.open(uri))
            check(uri, before, scenario)
            assert points.passed, "the job did nothing"
            self._points[scenario.name] = points.passed
        return self._points[scenario.name]


@pytest.fixture(scope="session")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Masters:
    return Masters(tmp_path_factory.mktemp("masters"))


def quiet(scenario: Scenario) -> warnings.catch_warnings[None]:
    return warnings.catch_warnings(action="ignore" if scenario.damaged else "default")


def crash_everywhere(scenario: Scenario, masters: Masters, directory: Path, stride: int) -> tuple[int, int, int]:
    """Points there are, points tried, and orphans that crashes left."""
    points = masters.points(scenario, directory)
    count = len(points)
    tried = sorted({0, count - 1, *range(0, count, stride)})
    left = 0
    for number in tried:
        uri, before = masters.copy(scenario, directory)
        with watching(dying_at(number)), pytest.raises(Death), quiet(scenario):
            scenario.run(pennon.open(uri))
        try:
            left += check_recovery(uri, before, scenario)
        except BaseException as error:
            error.add_note(f"after a crash at point {number}: {points[number]}")
            raise
    return count, len(tried), left


def fail_everywhere(
    scenario: Scenario, masters: Masters, directory: Path, stride: int, error: type[BaseException]
) -> tuple[int, int]:
    """Points there are, and points tried. The job may end well all the same, or say what is wrong."""
    points = masters.points(scenario, directory)
    tried = sorted({*range(0, len(points), stride), *(i for i, p in enumerate(points) if "commit" in p)})
    for number in tried:
        uri, before = masters.copy(scenario, directory)
        with (
            warnings.catch_warnings(action="ignore"),
            watching(failing_at(number, error)),
            suppress(error, PennonError),
        ):
            scenario.run(pennon.open(uri))
        try:
            check_recovery(uri, before, scenario)
        except BaseException as problem:
            problem.add_note(f"after {error.__name__} at point {number}: {points[number]}")
            raise
    return len(points), len(tried)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_crash_at_some_points(
    scenario: Scenario, masters: Masters, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    tally("crashes of driver and tasks together", crash_everywhere(scenario, masters, tmp_path, STRIDE)[1])


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_crash_at_every_point(
    scenario: Scenario, masters: Masters, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    count, tried, left = crash_everywhere(scenario, masters, tmp_path, 1)
    assert tried == count
    tally("crashes of driver and tasks together", tried)
    tally("orphans of crashes found and removed", left)


# Each third job, with one of the two errors; every job fails with both where the test is `heavy`.
SOME_FAILURES = [
    pytest.param(scenario, error, id=f"{scenario.name}-{error.__name__}")
    for scenario, error in zip(SCENARIOS[::3], cycle((KeyboardInterrupt, OSError)), strict=False)
]


@pytest.mark.parametrize(("scenario", "error"), SOME_FAILURES)
def test_failure_at_some_points(
    scenario: Scenario,
    error: type[BaseException],
    masters: Masters,
    tmp_path: Path,
    tally: Callable[[str, int], None],
) -> None:
    """The process goes on and cleans up behind itself: not what a commit has already named."""
    tried = fail_everywhere(scenario, masters, tmp_path, max(40, STRIDE), error)[1]
    tally("interruptions and failures of the store", tried)


@pytest.mark.heavy
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_failure_at_every_point(
    scenario: Scenario,
    error: type[BaseException],
    masters: Masters,
    tmp_path: Path,
    tally: Callable[[str, int], None],
) -> None:
    count, tried = fail_everywhere(scenario, masters, tmp_path, 1, error)
    assert tried == count
    tally("interruptions and failures of the store", tried)


WRITES_DATA = {
    "update a column": "write fragments: done",
    "compact, remap at once": "rewrite fragments: done",
    "compact, stable row ids": "rewrite fragments: done",
    "compact, defer the remap": "rewrite fragments: done",
}


@pytest.mark.parametrize("name", WRITES_DATA)
def test_data_files_of_a_crash_are_orphans(name: str, masters: Masters, tmp_path: Path) -> None:
    """A job that rewrites data dies with the first file written: it is found, goes, and answers are what they were."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    uri, before = masters.copy(scenario, tmp_path)

    def reached(_number: int, point: str) -> None:
        dead.extend([point] if point == WRITES_DATA[name] else [])
        if dead:
            raise Death

    dead: list[str] = []
    with watching(Points(reached)), pytest.raises(Death):
        scenario.run(pennon.open(uri))
    written = {path.name for path in Path(uri, "data").iterdir()} - named_data_files(every_version(uri))
    assert written
    found = [orphan for orphan in orphans(snapshot_of(uri)) if orphan.kind is OrphanKind.DATA]
    assert {orphan.path for orphan in found} == {f"data/{name}" for name in written}
    assert all(orphan.size_bytes == Path(uri, orphan.path).stat().st_size for orphan in found)
    check_recovery(uri, before, scenario)


def left_data_file(uri: str) -> str:
    [fragment] = write_fragments(rows(2, 0), uri, mode="append")
    return f"data/{fragment.files[0].path}"


BESIDE = (
    *("build a B-tree", "build an IVF_HNSW_SQ", "merge segments"),
    *("compact, remap at once", "catch up", "update a column"),
)


@pytest.mark.parametrize("name", BESIDE)
def test_cleaning_beside_a_running_job(name: str, masters: Masters, tmp_path: Path) -> None:
    """At every point of a job, somebody cleans the table of what is older than a moment: not the job's files."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    uri, before = masters.copy(scenario, tmp_path)
    littered = tmp_path / "t.lance" / "_indices" / "0a0a0a0a-0000-4000-8000-000000000000"
    littered.mkdir(parents=True)
    (littered / "left").write_bytes(b"by a crash, long ago")
    data_file = left_data_file(uri)
    for path in (littered / "left", littered, tmp_path / "t.lance" / data_file):
        os.utime(path, (0, 0))
    cleaned: list[str] = []

    def clean(_number: int, _name: str) -> None:
        points.reached = lambda *_: None  # cleaning deletes files, which are points, too
        cleaned.extend(orphan.path for orphan in delete_orphans(snapshot_of(uri), 3600).deleted)
        points.reached = clean

    points = Points(clean)
    with watching(points):
        scenario.run(pennon.open(uri))
    assert cleaned == ["_indices/0a0a0a0a-0000-4000-8000-000000000000", data_file]
    check(uri, before, scenario)
    check_files(uri)
