"""An engine whose tasks run in the calling thread, one after the other: an exception that ends the job ends it at the
same point every time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pennon.engine import LocalEngine
from pennon.errors import TaskFailed


class InProcess(LocalEngine):
    """Plans as for two cores, so that work is cut into several tasks. An exception that is not an error of Pennon is
    raised as it is, not as `TaskFailed`: a test that accepts errors of Pennon must not accept it."""

    def __init__(self) -> None:
        super().__init__(threads=1)

    @property
    def parallelism(self) -> int:
        """The number of cores that plans assume."""
        return 2

    def map(self, *arguments: Any, **options: Any) -> Any:
        """As every engine maps."""
        with _unwrapped():
            return super().map(*arguments, **options)

    def exchange(self, *arguments: Any, **options: Any) -> Any:
        """As every engine exchanges."""
        with _unwrapped():
            return super().exchange(*arguments, **options)


@contextmanager
def in_process() -> Generator[None]:
    """Tables opened in this context use an `InProcess` engine, for any engine they name."""
    with mock.patch("pennon.table.choose_engine", return_value=InProcess()):
        yield


@contextmanager
def _unwrapped() -> Generator[None]:
    try:
        yield
    except TaskFailed as failed:
        raise failed.__cause__ or failed from None
