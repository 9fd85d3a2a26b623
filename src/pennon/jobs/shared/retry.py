"""Commits that others may get in the way of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from pennon.format.commit import RetryableConflict
from pennon.format.snapshot import Snapshot

T = TypeVar("T")

ATTEMPTS = 8


def on_newest(snapshot: Snapshot, commit: Callable[[Snapshot], T]) -> T:
    """What `commit` makes of the newest version, again after each conflict that may pass."""
    base = snapshot
    for attempt in range(ATTEMPTS):
        base = base.latest()
        try:
            return commit(base)
        except RetryableConflict:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(random.uniform(0.5, 1.0) * min(2.0, 0.05 * 2**attempt))
    raise AssertionError("unreachable")
