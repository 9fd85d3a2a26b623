"""Trials in processes of their own, watched: a crash, a hang or memory without bound ends one of them and is reported
with its seed, and the next trial goes to a new one."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.hostile.trial import RIGHT, run_trial
from tests.hostile.victims import Victim

WORKERS = 2
CASE_SECONDS = 90.0
RESIDENT_BYTES = 2 << 30
# A process is ended here. What takes so much less may be told by how it ends.
MOST_RESIDENT_BYTES = 6 << 30
# Far above what is ever resident; an allocation that no machine could serve fails at once.
ADDRESS_BYTES = 16 << 30

Case = tuple[str, int]


@dataclass(frozen=True)
class Verdict:
    """`outcome` is that of the trial, or how its process ended; `swollen` where it was right and took much memory."""

    case: Case
    outcome: str
    damage: str = ""
    told: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.case[0]} {self.case[1]}: {self.outcome}; {self.damage}", *self.told])


def run_cases(
    victims: dict[str, Victim], cases: Iterable[Case], directory: Path, workers: int = WORKERS
) -> Iterator[Verdict]:
    """Verdicts in the order in which trials end."""
    waiting = deque(cases)
    running = [_Worker(victims, directory) for _ in range(workers)]
    try:
        for worker in running:
            worker.give(waiting)
        while any(worker.case for worker in running):
            wait([worker.answers for worker in running if worker.case], timeout=0.1)
            for number, worker in enumerate(running):
                verdict = worker.verdict()
                if verdict is None:
                    continue
                # A peak of memory is the process's: the next trial would be blamed for it.
                if verdict.outcome == "swollen" or not worker.process.is_alive():
                    worker.end()
                    running[number] = worker = _Worker(victims, directory)
                worker.give(waiting)
                yield verdict
    finally:
        for worker in running:
            worker.end()


class _Worker:
    def __init__(self, victims: dict[str, Victim], directory: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers, theirs = context.Pipe()
        self.log = directory / f"worker-{time.monotonic_ns()}.log"
        arguments = theirs, pickle.dumps(victims), str(directory), str(self.log)
        self.process: BaseProcess = context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        self._since, self._damage = 0.0, ""

    def give(self, waiting: deque[Case]) -> None:
        if waiting:
            self.case, self._since = waiting.popleft(), time.monotonic()
            self.answers.send(self.case)

    def verdict(self) -> Verdict | None:
        """Of the case in hand, if it has come to an end. One that went too far is ended here."""
        case = self.case
        if case is None:
            return None
        try:
            found = self._received(case)
        except (EOFError, ConnectionError):
            self.process.join(10)
            code = f"exit code {self.process.exitcode}"
            found = Verdict(case, "crash", self._damage, (code, self._last_words()))
        if found is None:
            problem = self._excess()
            if problem is None:
                return None
            self.end()
            found = Verdict(case, problem, self._damage, (self._last_words(),))
        self.case = None
        return found

    def _received(self, case: Case) -> Verdict | None:
        if not self.answers.poll():
            return None
        first, *others = self.answers.recv()
        if first == "damage":
            self._damage = others[0]
            return self._received(case)
        return Verdict(case, first, *others)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.answers.close()

    def _excess(self) -> str | None:
        # A new process has much to import before its first case.
        if time.monotonic() - self._since > CASE_SECONDS:
            return "hang"
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return None
        return "memory" if pages * resource.getpagesize() > MOST_RESIDENT_BYTES else None

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace").replace("\0", "")[-600:] if self.log.exists() else ""


def _serve(cases: Connection, victims: bytes, directory: str, log: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    known: dict[str, Victim] = pickle.loads(victims)
    while True:
        try:
            name, seed = cases.recv()
        except EOFError:
            return
        os.ftruncate(2, 0)
        trial = run_trial(known[name], seed, Path(directory), lambda damage: cases.send(("damage", str(damage))))
        told = trial.faults or trial.refused[:1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        swollen = peak > RESIDENT_BYTES and trial.outcome in RIGHT
        cases.send(("swollen" if swollen else trial.outcome, str(trial.damage), tuple(told)))
