"""The memory a task may use."""

from __future__ import annotations

import os

import numpy as np

from pennon.errors import InvalidArgument

DEFAULT_TASK_MEMORY = 1 << 30
LEAST_TASK_MEMORY = 64 << 20


def task_memory(requested: int | None) -> int:
    """The memory budget of one task in bytes: as requested, else PENNON_TASK_MEMORY, else 1 GiB.

    Raises:
        InvalidArgument: too little for any task, or not a number.
    """
    memory = requested
    if memory is None:
        configured = os.environ.get("PENNON_TASK_MEMORY", str(DEFAULT_TASK_MEMORY))
        if not configured.isdecimal():
            raise InvalidArgument(
                f"PENNON_TASK_MEMORY is {configured!r}, which is not a number of bytes", "Set it to a number of bytes"
            )
        memory = int(configured)
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"task_memory_bytes must be a whole number, not {memory!r}", "Give a number of bytes")
    if memory < LEAST_TASK_MEMORY:
        raise InvalidArgument(f"a task memory of {memory} bytes is too little", "Use at least 64 MiB")
    return memory
