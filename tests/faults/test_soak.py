"""Writers, maintainers of two makes and readers on one table, for a while: every read is right, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

import pennon
from pennon.errors import CommitConflict, CoverageWarning
from pennon.jobs.maintain import MaintenancePolicy
from tests.faults.on_spark import ROOT, environment
from tests.faults.scenarios import check_files
from tests.faults.soak import DIM, OWN, rows
from tests.tables import full_scan, stock_answer

FILTERS = ("k = 7", "k between 3 and 5", "k > 38", "k in (1, 19, 400)")
WRITERS = 2

# Now and then pylance never wakes threads that scan and read files at once in one process; `tests/test_concurrency.py`
# is the short form.
pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.heavy]


class Soak:
    """One table, and what was done to it so far."""

    def __init__(self, uri: str, *, stable: bool) -> None:
        self.uri, self.stable = uri, stable
        self.counts: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.over = threading.Event()
        lance.write_dataset(rows(list(range(300)), 0), uri, max_rows_per_file=100, enable_stable_row_ids=stable)
        table = pennon.open(uri)
        table.create_index("k", batch_size=32)
        table.create_index("v", "IVF_FLAT", num_partitions=4, max_iters=4)
        table.create_index("id", name="gone")

    def run(self, seconds: float) -> list[dict[str, Any]]:
        started = [self._process("writer", number, seconds) for number in range(1, WRITERS + 1)]
        started.append(self._process("stock", 9, seconds))
        policy = MaintenancePolicy(
            remap="immediate" if self.stable else "deferred", min_fragments_to_compact=3, max_reuse_versions=2
        )
        jobs: list[Callable[[], None]] = [
            lambda: self._maintain(policy),
            self._optimize,
            self._read,
            self._read,
            self._drop,
        ]
        threads = [threading.Thread(target=self._guarded, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        said = [process.communicate(timeout=seconds + 120) for process in started]
        self.over.set()
        for thread in threads:
            thread.join()
        if self.failures:
            raise ExceptionGroup("in the soak", [f for f in self.failures if isinstance(f, Exception)])
        for process, (_, complaint) in zip(started, said, strict=True):
            assert process.returncode == 0, complaint[-3000:]
        return [json.loads(output.splitlines()[-1]) for output, _ in said]

    def _process(self, role: str, number: int, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.faults.soak", role, self.uri, str(number), str(seconds)]
        return subprocess.Popen(
            command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            while not self.over.is_set():
                job()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.failures.append(error)

    def _maintain(self, policy: MaintenancePolicy) -> None:
        self._job("maintain", lambda: pennon.open(self.uri).maintain(policy))
        self.over.wait(0.5)

    def _optimize(self) -> None:
        self._job("optimize", lambda: pennon.open(self.uri).optimize(index_names=["k_idx", "v_idx"]))
        self.over.wait(0.7)

    def _job(self, name: str, job: Callable[[], Any]) -> None:
        """A conflict that does not pass is a fair end of a job, if it has a name."""
        try:
            job()
            self.counts[name] += 1
        except CommitConflict:
            self.counts[f"{name} given up"] += 1

    def _drop(self) -> None:
        """Drops an index in the middle of it all; it must not come back."""
        if self.over.wait(1.0):
            return
        table = pennon.open(self.uri)
        if any(index.name == "gone" for index in table.indices()):
            table.drop_index("gone")
            self.counts["dropped at"] = table.version

    def _read(self) -> None:
        table = pennon.open(self.uri)
        pinned = lance.dataset(self.uri, version=table.version)
        for condition in FILTERS:
            scanner = pinned.scanner(columns=["id"], filter=condition, use_scalar_index=False)
            expected = sorted(scanner.to_table()["id"].to_pylist())
            found = sorted(table.scan(condition, ["id"])["id"].to_pylist())
            assert found == expected, f"version {table.version}: {condition}"
            self.counts["reads"] += 1
        data = pinned.to_table(columns=["id", "v"])
        vectors = np.stack(data["v"].combine_chunks().to_numpy(zero_copy_only=False))
        query = np.random.default_rng(self.counts["reads"]).standard_normal(DIM).astype(np.float32)
        exact = np.sort(((vectors - query) ** 2).sum(axis=1))[:5]
        nearest = table.search("v", query, 5, nprobes=1000, columns=["id"])["_distance"].to_numpy()
        np.testing.assert_allclose(np.sort(nearest), exact, rtol=1e-4, err_msg=f"version {table.version}")
        self.counts["reads"] += 1


def soak(path: Path, seconds: float, *, stable: bool, tally: Callable[[str, int], None]) -> None:
    soaked = Soak(str(path), stable=stable)
    uri = soaked.uri
    with warnings.catch_warnings():
        # What was lost to a writer is said, and covered by a later pass.
        warnings.simplefilter("ignore", CoverageWarning)
        *written, maintained = soaked.run(seconds)
        table = pennon.open(uri)
        for _ in range(3):
            table.optimize()
    assert {index.name: index.coverage for index in table.indices()} == {"k_idx": 1.0, "v_idx": 1.0}
    expected = dict(pair for said in written for pair in said["rows"])
    kept = lance.dataset(uri).to_table(columns=["id", "k"], filter=f"id >= {OWN}")
    assert dict(zip(kept["id"].to_pylist(), kept["k"].to_pylist(), strict=True)) == expected
    assert lance.dataset(uri).count_rows(f"id < {OWN}") == 300
    for condition in FILTERS:
        assert stock_answer(uri, condition)[0] == full_scan(uri, condition), f"stock: {condition}"
    check_files(uri)
    _check_gone(uri, soaked.counts.pop("dropped at"))
    tally("reads in soaks, each equal to a scan of its version", soaked.counts.pop("reads"))
    tally("writes in soaks, all accounted for", sum(said["steps"] for said in written))
    tally("maintenance runs of stock in soaks", maintained["steps"])
    given_up = sum(soaked.counts.pop(name) for name in [n for n in soaked.counts if n.endswith("given up")])
    tally("maintenance runs of Pennon in soaks", soaked.counts.total())
    tally("maintenance runs of Pennon in soaks given up for a conflict", given_up)


def _check_gone(uri: str, dropped: int) -> None:
    """The dropped index is in no version since."""
    known: Any = lance.dataset(uri).versions()
    for version in (v["version"] for v in known):
        if version >= dropped:
            names = {index.name for index in lance.dataset(uri, version=version).describe_indices()}
            assert "gone" not in names, f"version {version} has the index that version {dropped} dropped"


@pytest.mark.parametrize("stable", [False, True])
def test_short_soak(tmp_path: Path, stable: bool, tally: Callable[[str, int], None]) -> None:
    soak(tmp_path / "t.lance", 8, stable=stable, tally=tally)


@pytest.mark.parametrize("stable", [False, True])
def test_long_soak(tmp_path: Path, stable: bool, tally: Callable[[str, int], None]) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < 180:
        soak(tmp_path / f"{time.monotonic_ns()}.lance", 60, stable=stable, tally=tally)
