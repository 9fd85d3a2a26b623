"""Fault points: everything a job does to storage, numbered, so that it can be made to end at each.

Points lie before a file is begun, filled or finished, copied or deleted, before fragments are written or rewritten, and
before and after every commit. They are patched into the one layer that touches storage, `pennon.format`, and into what
that layer asks pylance to write.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest import mock

import lance

from pennon.format import append as new_rows
from pennon.format import column_update
from pennon.format.compaction import commit as compaction_commit
from pennon.format.compaction import execute
from pennon.format.store import Store

CHANGES = {
    "write": "write a file",
    "copy": "copy a file",
    "delete": "delete a file",
    "delete_directory": "delete a directory",
}


class Death(BaseException):
    """The process is no more. Not an Exception, so that nobody handles it; what runs while it unwinds changes nothing,
    because a dead process does not clean up either."""


@dataclass
class Points:
    """Counts the points that are passed, and acts at one of them."""

    reached: Callable[[int, str], None] = lambda _number, _name: None
    passed: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, name: str) -> None:
        with self._lock:
            number = len(self.passed)
            self.passed.append(name)
        self.reached(number, name)


def dying_at(target: int) -> Points:
    """The process dies at a point and stays dead, as far as storage can tell."""

    def reached(number: int, _name: str) -> None:
        if number >= target:
            raise Death

    return Points(reached)


def failing_at(target: int, error: type[BaseException]) -> Points:
    """What is done at a point fails, once, and the process goes on: it is interrupted, or the store has an outage."""

    def reached(number: int, _name: str) -> None:
        if number == target:
            raise error("on purpose")

    return Points(reached)


def killed_at(target: int) -> Points:
    """The process is killed at a point, by the kernel."""

    def reached(number: int, _name: str) -> None:
        if number == target:
            os.kill(os.getpid(), signal.SIGKILL)

    return Points(reached)


@contextmanager
def watching(points: Points) -> Generator[None]:
    """Points are passed while this lasts."""
    with ExitStack() as stack:
        for name, what in CHANGES.items():
            stack.enter_context(mock.patch.object(Store, name, _before(points, getattr(Store, name), what)))
        stack.enter_context(mock.patch.object(Store, "open_writer", _opening(points, Store.open_writer)))
        commit = _around(points, lance.LanceDataset.commit, "commit")
        stack.enter_context(mock.patch.object(lance.LanceDataset, "commit", staticmethod(commit)))
        cleanup = _before(points, lance.LanceDataset.cleanup_old_versions, "delete old versions")
        stack.enter_context(mock.patch.object(lance.LanceDataset, "cleanup_old_versions", cleanup))
        for module in (column_update, new_rows):
            writing = _around(points, module.write_fragments, "write fragments")
            stack.enter_context(mock.patch.object(module, "write_fragments", writing))
        for module in (compaction_commit, execute):
            stack.enter_context(mock.patch.object(module, "_native", _compaction(points)))
        yield


def _before(points: Points, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        points(name)
        return function(*args, **kwargs)

    return call


def _around(points: Points, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        points(name)
        done = function(*args, **kwargs)
        points(f"{name}: done")
        return done

    return call


def _opening(points: Points, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        points("begin a file")
        return _Writer(points, function(*args, **kwargs))

    return call


class _Writer:
    """A writer of Lance files with points before its first batch and before its end."""

    def __init__(self, points: Points, writer: Any) -> None:
        self._points, self._writer, self._begun = points, writer, False

    def write_batch(self, batch: Any) -> None:
        if not self._begun:
            self._points("fill a file")
            self._begun = True
        self._writer.write_batch(batch)

    def close(self) -> Any:
        self._points("finish a file")
        return self._writer.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def _compaction(points: Points) -> Any:
    """pylance's own classes take no patches, so they are stood in for."""
    native: Any = lance.optimize

    class Task:
        @staticmethod
        def from_json(content: str) -> Any:
            task = native.CompactionTask.from_json(content)
            return SimpleNamespace(execute=_around(points, task.execute, "rewrite fragments"))

    class Compaction:
        plan = staticmethod(native.Compaction.plan)
        commit = staticmethod(_around(points, native.Compaction.commit, "commit"))

    stand_in = SimpleNamespace(**vars(native))
    stand_in.CompactionTask, stand_in.Compaction = Task, Compaction
    return stand_in
