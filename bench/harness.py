"""Timing, memory and the result files."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("PENNON_BENCH_DATA", Path(tempfile.gettempdir()) / "pennon-bench"))


@dataclass(frozen=True)
class Choice:
    """The options of the command line. With any of them a measurement is a trial, whose result is printed only."""

    rows: int | None = None
    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    turns: int | None = None

    @property
    def keep(self) -> bool:
        return self == Choice()


@dataclass
class Peaks:
    """The most memory in GiB, shared pages counted once: of everything together, and of each part by itself."""

    total: float = 0
    driver: float = 0
    jvm: float = 0
    workers: float = 0
    largest_worker: float = 0

    def see(self, driver: float, jvm: float, workers: Sequence[float]) -> None:
        self.total = max(self.total, driver + jvm + sum(workers))
        self.driver, self.jvm = max(self.driver, driver), max(self.jvm, jvm)
        self.workers = max(self.workers, sum(workers))
        self.largest_worker = max(self.largest_worker, *workers, 0)


@contextmanager
def peak_memory() -> Generator[Peaks]:
    """What this process and all its children hold at most: the driver, Spark's JVM, its Python workers."""
    peaks, done = Peaks(), threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while True:
            driver, jvm, workers = 0.0, 0.0, list[float]()
            for process in [me, *me.children(recursive=True)]:
                try:
                    held = process.memory_full_info().pss / 2**30
                    name = process.name()
                except psutil.Error:
                    continue
                if process.pid == me.pid:
                    driver = held
                elif name == "java":
                    jvm += held
                else:
                    workers.append(held)
            peaks.see(driver, jvm, workers)
            if done.wait(0.1):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


@dataclass(frozen=True)
class Grid:
    """A table of a report, with a heading where there are several."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    heading: str = ""

    def lines(self) -> list[str]:
        lines = [f"## {self.heading}", ""] if self.heading else []
        lines += [f"| {' | '.join(self.header)} |", f"|{'---|' * len(self.header)}"]
        return [*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in self.rows), ""]


def report(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print a table and keep it beside the code, with the machine and versions it was measured on."""
    report_grids(name, title, [Grid(header, rows)], note)


def report_grids(
    name: str, title: str, grids: Sequence[Grid], note: str = "", *, packages: Sequence[str] = (), keep: bool = True
) -> None:
    """Print tables; keep them unless they come of a trial of another size."""
    lines = [f"# {title}", ""]
    for grid in grids:
        lines += grid.lines()
    versions = ", ".join(f"{p} {version(p)}" for p in ("pylance", "pyspark", "pyarrow", *packages, "numpy"))
    versions += f" with {blas_kernels()}"
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    machine = f"{cpu_name()}, {os.cpu_count()} cores, {memory}, Python {platform.python_version()}"
    lines += [note, ""] if note else []
    lines += [f"Measured {time.strftime('%Y-%m-%d')} on {machine}, {versions}. Command: `make bench BENCH={name}`."]
    text = "\n".join(lines) + "\n"
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text(text)
    print(text)


def cpu_name() -> str:
    """The model of the processor, as its maker names it, and the numbers of its generation: a virtual machine may give
    several generations one name."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.exists() else []
    facts = {line.partition(":")[0].strip(): " ".join(line.partition(":")[2].split()) for line in lines}
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    return f"{facts['model name']} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')})"


def blas_kernels() -> str:
    """What computes the products of numpy: OpenBLAS has kernels for several processors, and OPENBLAS_CORETYPE may name
    others than those of this one."""
    library = ctypes.CDLL(importlib.import_module("numpy._core._multiarray_umath").__file__)
    for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
        if hasattr(library, name):
            ask = getattr(library, name)
            ask.restype = ctypes.c_char_p
            return f"OpenBLAS kernels for {ask().decode()}"
    return "a library other than OpenBLAS"


def say(what: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


def fresh(name: str) -> Path:
    path = DATA / name
    shutil.rmtree(path, ignore_errors=True)
    DATA.mkdir(parents=True, exist_ok=True)
    return path
