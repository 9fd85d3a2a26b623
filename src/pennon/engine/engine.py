"""What every verb is written against: a function over tasks, and batches from tasks to destinations."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R")

# A destination and what is sent there.
Sent = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class Exchanged(Generic[M, R]):
    """The reports of the map tasks in their order, and what each destination made of what it was sent."""

    mapped: list[M]
    reduced: dict[int, R]


class Engine(Protocol):
    """Runs functions over tasks.

    Functions, tasks and results travel by pickle: keep them small, pass paths rather than data. A task may run more
    than once: two attempts must not get in each other's way. A `PennonError` raised in a task is raised again here,
    without further attempts; any other failure is raised as `TaskFailed`.
    """

    @property
    def attached(self) -> bool:
        """Whether it is ready; using it otherwise may start a session."""
        ...

    @property
    def parallelism(self) -> int:
        """How many tasks can run at once."""
        ...

    def advice(self) -> list[str]:
        """Which settings would help, and why. The engine never changes them."""
        ...

    def stage(self, name: str, rows: int | None = None) -> AbstractContextManager[None]:
        """Reports to the listener work that this process does itself."""
        ...

    def map(self, stage: str, function: Callable[[T], R], tasks: Sequence[T], *, rows: int | None = None) -> list[R]:
        """What `function` returns for every task, in their order. `rows` is how many rows of the table all of them go
        through, for the listener."""
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
        """Sends the batches of every task to numbered destinations.

        `map_function` names a destination with every batch; what it returns at the end is the report of its task.
        `reduce_function` is called once for every destination that was sent a batch, and reads them as they come in:
        in any order, and large batches in several pieces. `rows` is how many rows of the table each side goes through,
        for the listener.
        """
        ...

    def stop(self) -> None:
        """Ends what Pennon itself started."""
        ...
