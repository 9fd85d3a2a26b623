"""Errors in one line: Spark prints the traceback of every error of a data source or a function."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pennon.errors import PennonError


@contextmanager
def without_traceback() -> Generator[None]:
    """Re-raise Pennon's errors without their causes and tracebacks."""
    try:
        yield
    except PennonError as error:
        kind, arguments = error.__reduce__()
        raise kind(*arguments) from None
