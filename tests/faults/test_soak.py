"""Writers, maintainers of two makes and readers on one table, for a while: every read is right, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

import pennon
from tests.faults.scenarios import check_files
from tests.faults.soak import FILTERS, OWN, Said, rows
from tests.support.processes import ROOT, environment
from tests.support.tables import full_scan, stock_answer

# For a process to start, and to end the job it is at.
GRACE = 120

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("engine")]


def make(uri: str, *, stable: bool) -> None:
    lance.write_dataset(rows(list(range(300)), 0), uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    table = pennon.open(uri)
    table.create_index("k", batch_size=32)
    table.create_index("v", "IVF_FLAT", num_partitions=4, max_iters=4)
    table.create_index("id", name="gone")


def run(uri: str, seconds: float, how: tuple[str, ...]) -> dict[str, list[Said]]:
    """What each role says at its end; all of them run at once."""
    roles = ["writer", "writer", "stock", "maintain", "optimize", "drop", "reader", "reader"]
    started = [(role, _start(role, uri, number, seconds, how)) for number, role in enumerate(roles, start=1)]
    said: dict[str, list[Said]] = {role: [] for role in roles}
    try:
        for role, process in started:
            output, complaint = process.communicate(timeout=seconds + GRACE)
            assert process.returncode == 0, f"{role}: {complaint[-3000:]}"
            said[role].append(json.loads(output.splitlines()[-1]))
    finally:
        for _, process in started:
            process.kill()
            process.communicate()
    return said


def _start(role: str, uri: str, number: int, seconds: float, how: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.soak", role, uri, str(number), str(seconds), *how]
    return subprocess.Popen(
        command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def soak(path: Path, seconds: float, *how: str, stable: bool, tally: Callable[[str, int], None]) -> None:
    uri = str(path)
    make(uri, stable=stable)
    said = run(uri, seconds, how)
    table = pennon.open(uri)
    for _ in range(3):
        table.optimize_indices()
    assert {index.name: index.coverage for index in table.indices()} == {"k_idx": 1.0, "v_idx": 1.0}
    expected = dict(pair for written in said["writer"] for pair in written["rows"])
    kept = lance.dataset(uri).to_table(columns=["id", "k"], filter=f"id >= {OWN}")
    assert dict(zip(kept["id"].to_pylist(), kept["k"].to_pylist(), strict=True)) == expected
    assert lance.dataset(uri).count_rows(f"id < {OWN}") == 300
    for condition in FILTERS:
        assert stock_answer(uri, condition)[0] == full_scan(uri, condition), f"stock: {condition}"
    check_files(uri)
    _check_gone(uri, said["drop"][0]["version"])

    def total(*roles: str, of: str) -> int:
        return sum(each[of] for role in roles for each in said[role])

    tally("reads in soaks, each equal to a scan of its version", total("reader", of="reads"))
    tally("writes in soaks, all accounted for", total("writer", of="steps"))
    tally("maintenance runs of stock in soaks", total("stock", of="steps"))
    tally("maintenance runs of Pennon in soaks", total("maintain", "optimize", of="steps"))
    tally("maintenance runs of Pennon in soaks given up for a conflict", total("maintain", "optimize", of="given_up"))


def _check_gone(uri: str, dropped: int) -> None:
    """The dropped index is in no version since."""
    known: Any = lance.dataset(uri).versions()
    for version in (v["version"] for v in known):
        if version >= dropped:
            names = {index.name for index in lance.dataset(uri, version=version).describe_indices()}
            assert "gone" not in names, f"version {version} has the index that version {dropped} dropped"


@pytest.mark.heavy
@pytest.mark.parametrize("stable", [False, True])
def test_short_soak(tmp_path: Path, stable: bool, tally: Callable[[str, int], None]) -> None:
    soak(tmp_path / "t.lance", 8, stable=stable, tally=tally)


@pytest.mark.heavy
@pytest.mark.parametrize("stable", [False, True])
def test_long_soak(tmp_path: Path, stable: bool, tally: Callable[[str, int], None]) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < 180:
        soak(tmp_path / f"{time.monotonic_ns()}.lance", 60, "on-spark", stable=stable, tally=tally)
