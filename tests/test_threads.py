"""Many threads of one process ask one table, while others scan it by stock: all of them come to an end.

In a process of its own with a single thread of pylance's: what keeps the GIL while it waits for that thread stops
the process for good within a second. pylance 14.0.2 has one such call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import lance
import numpy as np
import pytest

import pennon
from pennon.index.cache import SHARED_CACHE
from tests.faults.scenarios import FILTERS, indexed
from tests.support.processes import ROOT, environment
from tests.support.tables import full_scan

pytestmark = pytest.mark.process

SECONDS = 3.0


def main(uri: str) -> None:
    expected = {condition: full_scan(uri, condition) for condition in FILTERS}
    query = np.zeros(8, np.float32)
    nearest = pennon.open(uri).search("v", query, 5, nprobes=10, columns=["id"])["id"].to_pylist()
    end = time.monotonic() + SECONDS
    done: list[int] = []

    def filters() -> None:
        # Files are opened anew each time, as in a process that has more tables than its cache holds.
        SHARED_CACHE.clear()
        for condition, ids in expected.items():
            assert sorted(pennon.open(uri).scan(condition, ["id"])["id"].to_pylist()) == ids, condition

    def search() -> None:
        SHARED_CACHE.clear()
        assert pennon.open(uri).search("v", query, 5, nprobes=10, columns=["id"])["id"].to_pylist() == nearest

    def stock() -> None:
        assert lance.dataset(uri).to_table(columns=["k"]).num_rows > 0

    def repeat(job: Callable[[], None]) -> None:
        while time.monotonic() < end:
            job()
        done.append(1)

    threads = [threading.Thread(target=repeat, args=(job,)) for job in (filters, search, stock) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    click.echo(f"{len(done)} of {len(threads)}")


@pytest.mark.usefixtures("engine")
def test_threads_of_one_process(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    indexed(uri)
    command = [sys.executable, "-m", "tests.test_threads", uri]
    alone = os.environ | environment(TOKIO_WORKER_THREADS="1")
    ended = subprocess.run(command, env=alone, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "6 of 6"), ended.stderr[-3000:]


if __name__ == "__main__":
    main(sys.argv[1])
