"""Timing, memory and the result files."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("PENNON_BENCH_DATA", Path(tempfile.gettempdir()) / "pennon-bench"))


def interleaved(contestants: dict[str, Callable[[], object]], rounds: int = 3) -> dict[str, float]:
    """Best seconds of each, taken in turns so that a noisy machine is noisy for all."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, work in contestants.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The most memory (GiB, shared pages counted once) this process and all its children held together."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while True:
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            peak[0] = max(peak[0], total / 2**30)
            if done.wait(0.1):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def report(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print a table and keep it beside the code, with the machine and versions it was measured on."""
    lines = [f"# {title}", "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    packages = ", ".join(f"{p} {version(p)}" for p in ("pylance", "pyspark", "pyarrow", "numpy"))
    machine = (
        f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, Python {platform.python_version()}"
    )
    lines += ["", note] if note else []
    lines += ["", f"Measured {time.strftime('%Y-%m-%d')} on {machine}, {packages}. Command: `make bench BENCH={name}`."]
    text = "\n".join(lines) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def fresh(name: str) -> Path:
    path = DATA / name
    shutil.rmtree(path, ignore_errors=True)
    DATA.mkdir(parents=True, exist_ok=True)
    return path
