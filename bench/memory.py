"""Peak memory of builds, each in a process of its own: what an earlier build left in driver, JVM and workers does not
count."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from bench.harness import Peaks, peak_memory, say
from bench.timing import Timing

PARTS = ("largest worker GiB", "all workers", "driver", "JVM", "all together", "seconds")
SAMPLED = (
    "GiB, shared pages counted once, sampled ten times a second. Each part has a peak of its own, so that they add up"
    " to more than all together. Two tasks run at a time."
)


@dataclass(frozen=True)
class Case:
    """The cells that name a build, and the build, which can be sent to another process."""

    label: tuple[object, ...]
    build: Callable[[], tuple[Peaks, float]]


def watched(build: Callable[[], object]) -> tuple[Peaks, float]:
    start = time.perf_counter()
    with peak_memory() as peaks:
        build()
    return peaks, time.perf_counter() - start


def memory_in_turns(cases: Sequence[Case], turns: int) -> list[tuple[object, ...]]:
    """A row for each case: its label, and the median and spread of each of PARTS."""
    found: list[list[tuple[float, ...]]] = [[] for _ in cases]
    for turn in range(turns):
        for case, rows in zip(cases, found, strict=True):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                peaks, seconds = process.submit(case.build).result()
            rows.append((peaks.largest_worker, peaks.workers, peaks.driver, peaks.jvm, peaks.total, seconds))
            say(f"turn {turn + 1}, {', '.join(map(str, case.label))}: {', '.join(f'{part:.2f}' for part in rows[-1])}")
    return [(*case.label, *_cells(rows)) for case, rows in zip(cases, found, strict=True)]


def _cells(rows: Sequence[tuple[float, ...]]) -> list[str]:
    *memory, seconds = (Timing(turns) for turns in zip(*rows, strict=True))
    return [*(f"{part:.2f}" for part in memory), f"{seconds:.1f}"]
