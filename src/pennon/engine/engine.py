"""The interface that every verb uses to run work: a function over tasks, and batches from tasks to destinations."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R")

# A destination and a batch sent to it.
Sent = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class Exchanged(Generic[M, R]):
    """The reports of the map tasks in the order of the tasks, and the result of each destination."""

    mapped: list[M]
    reduced: dict[int, R]


class Engine(Protocol):
    """Runs functions over tasks.

    Functions, tasks and results travel by pickle: keep them small, pass paths rather than data. A task may run more
    than once: two attempts must not interfere with each other. A `PennonError` raised in a task is raised again here,
    without further attempts; any other failure is raised as `TaskFailed`.
    """

    @property
    def attached(self) -> bool:
        """Whether the engine is ready; if not, its first use may start a session."""
        ...

    @property
    def parallelism(self) -> int:
        """The number of tasks that can run at once."""
        ...

    @property
    def in_process(self) -> Engine:
        """An engine for small work, with the same listener: in threads of this process."""
        ...

    def advice(self) -> list[str]:
        """Recommended settings with reasons. The engine never changes them."""
        ...

    def stage(self, name: str, rows: int | None = None) -> AbstractContextManager[None]:
        """Report work of this process to the listener as a stage."""
        ...

    def map(self, stage: str, function: Callable[[T], R], tasks: Sequence[T], *, rows: int | None = None) -> list[R]:
        """The results of `function` in the order of the tasks. `rows`, for the listener, is the number of table rows
        that all tasks read together."""
        ...

    def exchange(
        self,
        stage: str,
        map_function: Callable[[T], Generator[Sent, None, M]],
        tasks: Sequence[T],
        reduce_function: Callable[[int, Iterator[pa.RecordBatch]], R],
        destinations: int,
        *,
        rows: int | None = None,
    ) -> Exchanged[M, R]:
        """Send the batches of every task to numbered destinations.

        `map_function` yields a destination with every batch; its return value is the report of its task.
        `reduce_function` is called once for every destination that was sent a batch, and reads them as they arrive: in
        any order, and large batches in several pieces. `rows`, for the listener, is the number of table rows that each
        side reads.
        """
        ...

    def stop(self) -> None:
        """Stop the session if Pennon started it."""
        ...
