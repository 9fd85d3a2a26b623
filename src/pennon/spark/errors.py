"""Errors as one line: Spark prints the trace of whatever a data source or a function raises."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pennon.errors import PennonError


@contextmanager
def plainly() -> Generator[None]:
    """Raises Pennon's own errors anew, without the errors they came from and the calls they came through."""
    try:
        yield
    except PennonError as error:
        kind, arguments = error.__reduce__()
        raise kind(*arguments) from None
