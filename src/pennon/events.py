"""What jobs and queries do to tables, as records of the standard library's loggers and as events for a metrics hook.

Commits, retries, conflicts and deletions happen deep inside jobs, and on behalf of verbs, the data source and SQL
functions alike. So a hook belongs to the process, as loggers do, and not to a table handle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from pennon.display import Displayed
from pennon.errors import InvalidArgument
from pennon.secrets import redact
from pennon.wording import in_line

logger = logging.getLogger(__name__)
_hooks: list[Callable[[Event], object]] = []
_changing = threading.Lock()


class EventKind(StrEnum):
    """What happened."""

    COMMIT = "commit"
    RETRY = "retry"
    CONFLICT = "conflict"
    FALLBACK = "fallback"
    DELETION = "deletion"


@dataclass(frozen=True)
class Event(Displayed):
    """One thing that happened to a table.

    `version` is the version committed, or the one that was looked at. `counts` are numbers to add up, `details` texts
    such as the reason. Nothing in it is a secret.
    """

    kind: EventKind
    table: str
    message: str
    indices: tuple[str, ...] = ()
    version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    details: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def index(self) -> str | None:
        """The name of the index, where there is exactly one."""
        return self.indices[0] if len(self.indices) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """The fields of the log record: counts and details are fields like the others."""
        return {
            "event": self.kind.value,
            "table": self.table,
            "index": self.index,
            "indices": list(self.indices),
            "version": self.version,
            **self.details,
            **self.counts,
        }


class Subscription:
    """A hook that receives events. It ends with `close()`, or with the `with` block it is used in."""

    def __init__(self, hook: Callable[[Event], object]) -> None:
        self._hook = hook

    def close(self) -> None:
        """No more events. Closing twice does no harm."""
        with _changing:
            _hooks[:] = [hook for hook in _hooks if hook is not self._hook]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def on_event(hook: Callable[[Event], object]) -> Subscription:
    """Call a function for every commit, retry, conflict, fallback to a scan and deletion in this process.

    The events are those that the loggers below `pennon` record. The hook is called in the thread that does the work,
    possibly in several at once, so it should be quick. What it raises is logged and does not stop the work. Tasks on
    executors are in other processes, and their fallbacks reach the loggers there.

    Args:
        hook: called with a `pennon.Event`.

    Returns:
        A subscription, to end it again.

    Raises:
        InvalidArgument: the hook cannot be called.
    """
    if not callable(hook):
        raise InvalidArgument(f"on_event takes a function, not {hook!r}", "Give a function of one pennon.Event")
    # An object of its own for each subscription, so that closing one leaves the others.
    own = _Hook(hook)
    with _changing:
        _hooks.append(own)
    return Subscription(own)


def emit(log: logging.Logger, level: int, event: Event) -> None:
    """Record an event with the logger of the module that it happens in, and pass it to the hooks."""
    event = _without_secrets(event)
    log.log(level, "%s", in_line(event.message), extra=event.to_dict(), stacklevel=2)
    for hook in tuple(_hooks):
        try:
            hook(event)
        except Exception:
            # A commit that has taken place must not look as if it had failed.
            logger.exception("a hook failed on the event %s of %s", event.kind.value, event.table)


@dataclass(frozen=True, eq=False)
class _Hook:
    call: Callable[[Event], object]

    def __call__(self, event: Event) -> None:
        self.call(event)


def _without_secrets(event: Event) -> Event:
    return Event(
        event.kind,
        redact(event.table),
        redact(event.message),
        event.indices,
        event.version,
        dict(event.counts),
        {name: redact(text) for name, text in event.details.items()},
    )
