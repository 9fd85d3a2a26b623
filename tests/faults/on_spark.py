"""Jobs on real Spark, in processes made to be killed.

`python -m tests.faults.on_spark count URI SCENARIO` makes a table and says which points the driver passes on a copy;
`... driver URI SCENARIO POINT` is killed at one of them;
`... workers DIRECTORY MASTER MODE` fails tasks at every point they pass, and says how many there were.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import click

import pennon
from tests.faults.points import Points, killed_at, watching
from tests.faults.scenarios import SCENARIOS, Contents, Scenario, check, index_contents
from tests.faults.workers import CONTROL, ask, happened

# Scenarios whose tasks pass points; those of the others do the same work.
WITH_TASKS = (
    "build a B-tree",
    "build an IVF_FLAT",
    "build an IVF_PQ",
    "build an IVF_HNSW_SQ",
    "merge segments",
    "compact, remap at once",
    "catch up",
    "update a column",
)
# Where a fault takes long, fewer do.
FAILED = {"kill": WITH_TASKS, "raise": WITH_TASKS, "slow": WITH_TASKS[::2], "lose": WITH_TASKS[::3]}
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.executor.memory": "1g",
    "spark.task.maxFailures": "4",
    # Another attempt at whatever is slower than the rest.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "300ms",
}


def start(master: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(verb: str, *args: str) -> None:
    warnings.simplefilter("ignore")
    match verb, args:
        case "count", (uri, name):
            _count(uri, _scenario(name))
        case "driver", (uri, name, point):
            with watching(killed_at(int(point))):
                _scenario(name).run(pennon.open(uri))
        case "workers", (directory, master, mode):
            _fail_tasks(Path(directory), master, mode)
        case _:
            sys.exit(__doc__)


def _scenario(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def _count(master: str, scenario: Scenario) -> None:
    """The table stays, for the processes that are killed."""
    start("local[2]")
    scenario.prepare(master)
    points = Points()
    uri = str(shutil.copytree(master, f"{master}-counted"))
    with watching(points):
        scenario.run(pennon.open(uri))
    shutil.rmtree(uri)
    click.echo(json.dumps(points.passed))


def _fail_tasks(directory: Path, master: str, mode: str) -> None:
    control = Path(os.environ[CONTROL])
    spark = start(master)
    for name in FAILED[mode]:
        scenario = _scenario(name)
        original = directory / "original.lance"
        scenario.prepare(str(original))
        before = Contents.of(str(original))
        undisturbed = str(shutil.copytree(original, directory / "undisturbed.lance"))
        scenario.run(pennon.open(undisturbed))
        expected, version = index_contents(undisturbed), pennon.open(undisturbed).version
        shutil.rmtree(undisturbed)
        point = 0
        while True:
            uri = str(shutil.copytree(original, directory / "t.lance"))
            token = f"{name}-{point}".replace(" ", "-").replace(",", "")
            ask(control, token, point, mode)
            scenario.run(pennon.open(uri))
            struck = happened(control, token)
            check(uri, before, scenario)
            assert index_contents(uri) == expected, f"{name}: other contents after {mode} at point {point}"
            assert pennon.open(uri).version == version, f"{name}: more than one commit after {mode} at point {point}"
            shutil.rmtree(uri)
            if not struck:
                break
            point += 1
        shutil.rmtree(original)
        control.unlink()
        click.echo(json.dumps({"name": name, "mode": mode, "faults": point}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
