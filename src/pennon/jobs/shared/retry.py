"""Commits that others may get in the way of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from pennon.format.commit import RetryableConflict
from pennon.format.snapshot import Snapshot

T = TypeVar("T")

ATTEMPTS = 8


@dataclass
class Attempt:
    """One try on the newest version. A conflict that may pass ends it, after a pause; the last one lets it through."""

    base: Snapshot
    number: int

    def __enter__(self) -> Snapshot:
        return self.base

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, RetryableConflict) or self.number == ATTEMPTS - 1:
            return False
        time.sleep(random.uniform(0.5, 1.0) * min(2.0, 0.05 * 2**self.number))
        return True


def attempts(snapshot: Snapshot) -> Iterator[Attempt]:
    """Tries on the newest version, each of them to be left by `return` when it has succeeded."""
    base = snapshot
    for number in range(ATTEMPTS):
        base = base.latest()
        yield Attempt(base, number)


def on_newest(snapshot: Snapshot, commit: Callable[[Snapshot], T]) -> T:
    """What `commit` makes of the newest version, again after each conflict that may pass."""
    for attempt in attempts(snapshot):
        with attempt as base:
            return commit(base)
    raise AssertionError("unreachable")
