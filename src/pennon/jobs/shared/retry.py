"""Attempts to commit on the newest version while other writers commit too."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from pennon.errors import CommitConflict
from pennon.events import Event, EventKind, emit
from pennon.format.commit import RetryableConflict
from pennon.format.snapshot import Snapshot

logger = logging.getLogger(__name__)

ATTEMPTS = 8


@dataclass
class Attempt:
    """One attempt on the newest version. A conflict of the `retried` classes ends it after a pause, except in the last
    attempt; every other error is raised."""

    base: Snapshot
    number: int
    change: str
    retried: tuple[type[CommitConflict], ...]
    most: int = ATTEMPTS
    indices: tuple[str, ...] = ()  # those it is about, once they are known

    def __enter__(self) -> Snapshot:
        return self.base

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, CommitConflict):
            return False
        retry = isinstance(error, self.retried) and self.number < self.most
        where = f"version {self.base.version} of {self.base.uri}, attempt {self.number} of {self.most}"
        event = Event(
            EventKind.RETRY if retry else EventKind.CONFLICT,
            self.base.uri,
            f"conflict on {where}, {'retried' if retry else 'not retried'}: {error.problem}",
            self.indices,
            self.base.version,
            {"attempt": self.number, "retried": retry},
            {"change": self.change, "reason": error.problem},
        )
        emit(logger, logging.INFO if retry else logging.WARNING, event)
        if retry:
            time.sleep(random.uniform(0.5, 1.0) * min(2.0, 0.025 * 2**self.number))
        return retry


def attempts(
    snapshot: Snapshot,
    change: str,
    *,
    retried: tuple[type[CommitConflict], ...] = (RetryableConflict,),
    most: int = ATTEMPTS,
) -> Iterator[Attempt]:
    """Attempts 1 to `most`, each on the newest version at that time. The body leaves the loop by `return` when
    its commit succeeded; `change` describes it in the log."""
    base = snapshot
    for number in range(1, most + 1):
        base = base.latest()
        yield Attempt(base, number, change, retried, most)
