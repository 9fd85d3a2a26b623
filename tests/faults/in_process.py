"""Tables whose tasks run in this very thread, one after the other: what ends the process ends its tasks with it, at the
same point every time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock

from pennon.engine import LocalEngine


class InProcess(LocalEngine):
    """Plans are those of two cores, so that work is cut into several tasks."""

    def __init__(self) -> None:
        super().__init__(threads=1)

    @property
    def parallelism(self) -> int:
        return 2


@contextmanager
def in_process() -> Generator[None]:
    """Tables opened meanwhile use it."""
    with mock.patch("pennon.table.choose_engine", return_value=InProcess()):
        yield
