"""The same on real Spark: the driver killed hard at every point of its own, and tasks that fail in every way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.faults.on_spark import FAILED
from tests.faults.scenarios import SCENARIOS, Contents, Scenario, check_recovery
from tests.faults.workers import CONTROL
from tests.support.processes import ROOT, environment

# Seconds for all runs of one process.
LIMIT = 1800
STRIDE = int(os.environ.get("PENNON_FAULT_STRIDE", "4"))
TALLIES = {
    "kill": "workers killed in tasks",
    "raise": "tasks failed once",
    "slow": "tasks held up, for Spark to start a second attempt",
    "lose": "executors killed in tasks",
}
LOCAL, CLUSTER = "local[2,4]", "local-cluster[2,1,1024]"

pytestmark = [pytest.mark.heavy, pytest.mark.process]


def run(*args: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.faults.on_spark", *args]
    return subprocess.run(
        command, env=environment(**extra), cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def said(process: subprocess.CompletedProcess[str]) -> list[Any]:
    assert process.returncode == 0, process.stderr[-4000:]
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith(("{", "["))]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.usefixtures("engine")
def test_driver_killed(scenario: Scenario, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    master, uri = tmp_path / "master.lance", tmp_path / "t.lance"
    [points] = said(run("count", str(master), scenario.name))
    before, left = Contents.of(str(master)), 0
    chosen = _chosen(points)
    for point in chosen:
        shutil.rmtree(uri, ignore_errors=True)
        shutil.copytree(master, uri)
        process = run("driver", str(uri), scenario.name, str(point))
        where = f"point {point}: {points[point]}"
        assert process.returncode == -SIGKILL, f"{where}: {process.stderr[-2000:]}"
        try:
            left += check_recovery(str(uri), before, scenario)
        except BaseException as error:
            error.add_note(f"after the driver was killed at {where}")
            raise
    tally("drivers killed on Spark", len(chosen))
    tally("orphans of crashes found and removed", left)


def _chosen(points: list[str]) -> list[int]:
    """Every commit, and of the others every so many: a process with Spark takes its time to start."""
    return [i for i, name in enumerate(points) if i % STRIDE == 0 or name.startswith("commit")]


@pytest.mark.parametrize("mode", FAILED)
def test_tasks_failing_at_every_point(mode: str, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    master = CLUSTER if mode == "lose" else LOCAL
    found = said(run("workers", str(tmp_path), master, mode, **{CONTROL: str(tmp_path / "control")}))
    assert [each["name"] for each in found] == list(FAILED[mode])
    assert all(each["faults"] for each in found), found
    tally(TALLIES[mode], sum(each["faults"] for each in found))
