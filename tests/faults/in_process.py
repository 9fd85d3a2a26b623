"""Tables whose tasks run in this very thread, one after the other: what ends the process ends its tasks with it, at the
same point every time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pennon.engine import LocalEngine
from pennon.errors import TaskFailed


class InProcess(LocalEngine):
    """Plans are those of two cores, so that work is cut into several tasks. An exception that is no error of Pennon's
    comes out as it was raised: tests that accept a refusal must not take it for one."""

    def __init__(self) -> None:
        super().__init__(threads=1)

    @property
    def parallelism(self) -> int:
        return 2

    def map(self, *arguments: Any, **options: Any) -> Any:
        with _unwrapped():
            return super().map(*arguments, **options)

    def exchange(self, *arguments: Any, **options: Any) -> Any:
        with _unwrapped():
            return super().exchange(*arguments, **options)


@contextmanager
def in_process() -> Generator[None]:
    """Tables opened meanwhile use it."""
    with mock.patch("pennon.table.choose_engine", return_value=InProcess()):
        yield


@contextmanager
def _unwrapped() -> Generator[None]:
    try:
        yield
    except TaskFailed as failed:
        raise failed.__cause__ or failed from None
