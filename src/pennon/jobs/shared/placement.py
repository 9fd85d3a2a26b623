"""Where work runs: on the engine, or if it is small in this process, which takes less time than to start a Spark job.

A plan that is `Placed` states its work as bytes to read, times what the kind does with a byte in comparison with a zone
map. The limit is about a third of a second of one core. Bytes of an object store count as many more: executors may be
closer to it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from urllib.parse import urlparse

from pennon.engine import Engine
from pennon.errors import InvalidArgument
from pennon.format.store import Location
from pennon.jobs.kinds import WorkPlan

IN_PROCESS_BYTES = 256 << 20
VARIABLE = "PENNON_IN_PROCESS_BYTES"
# How much longer the bytes of an object store take.
REMOTE_WEIGHT = 16
# What is done with a byte of files that are merged.
MERGE_WEIGHT = 8
# For work that is always too large for this process.
UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Effort:
    """What a plan reads: where it is, and bytes, times what is done with each."""

    location: Location
    nbytes: int

    @property
    def in_process(self) -> bool:
        """Whether it is small enough for this process."""
        remote = urlparse(self.location.uri).scheme not in ("", "file")
        return self.nbytes * (REMOTE_WEIGHT if remote else 1) <= in_process_bytes()


class Placed(ABC):
    """A plan whose work runs in this process where it is small."""

    @property
    @abstractmethod
    def work(self) -> Effort: ...


def in_process(plan: WorkPlan) -> bool:
    """Whether a plan runs in this process."""
    return isinstance(plan, Placed) and plan.work.in_process


def place_of(plan: WorkPlan) -> str:
    """For the line about the work of a printed plan."""
    return ", in this process" if in_process(plan) else ""


def placed(engine: Engine, plan: WorkPlan) -> Engine:
    """The engine that a plan is executed on."""
    return engine.in_process if in_process(plan) else engine


def in_process_bytes() -> int:
    """The limit; 0 for never.

    Raises:
        InvalidArgument: the environment has something else than a number.
    """
    configured = os.environ.get(VARIABLE, str(IN_PROCESS_BYTES))
    if not configured.isdecimal():
        raise InvalidArgument(f"{VARIABLE} is {configured!r}", "Set it to a number of bytes, 0 for never")
    return int(configured)
