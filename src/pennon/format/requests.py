"""Several requests to a store at once.

A request to an object store waits for most of its time, so several are made at once. On a local file system they
are made in order: threads would take longer to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from pennon.format.store import Store

AT_ONCE = 16
# Requests that have started, or ended, before their results are used.
AHEAD = 2 * AT_ONCE

T = TypeVar("T")
R = TypeVar("R")


def request_all(store: Store, request: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of a request for every item, in their order. All of them have ended when this returns, or raises the
    error of the first that failed."""
    wanted = list(items)
    if store.is_local or len(wanted) < 2:
        return [request(item) for item in wanted]
    # Threads start without the context of their caller, in which reads are counted.
    contexts = [copy_context() for _ in wanted]
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted)), thread_name_prefix="pennon-request") as pool:
        pending = [pool.submit(context.run, request, item) for context, item in zip(contexts, wanted, strict=True)]
    return [each.result() for each in pending]


def request_ahead(store: Store, request: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results of a request for every item, in their order, one by one: at most `AHEAD` are made before the result
    of the first of them is used."""
    wanted = list(items)
    if store.is_local or len(wanted) < 2:
        yield from map(request, wanted)
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted)), thread_name_prefix="pennon-request") as pool:
        try:
            for item in wanted:
                if len(pending) == AHEAD:
                    yield pending.popleft().result()
                pending.append(pool.submit(copy_context().run, request, item))
            while pending:
                yield pending.popleft().result()
        finally:
            for each in pending:
                each.cancel()
