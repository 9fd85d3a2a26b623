"""An engine that runs tasks in this very process, one after the other: what ends the process ends its tasks with it, at
the same point every time. Values travel pickled, as they do to Spark's workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pyarrow as pa

from pennon.engine.tasks import dumps


class InProcess:
    parallelism = 2
    attached = True

    def map(self, _stage: str, function: Callable[[Any], Any], tasks: Sequence[Any], **_: Any) -> list[Any]:
        return [_sent(function(_sent(task))) for task in tasks]

    def exchange(
        self,
        _stage: str,
        map_function: Callable[[Any], Iterable[tuple[int, pa.RecordBatch]]],
        tasks: Sequence[Any],
        reduce_function: Callable[[int, Iterator[pa.RecordBatch]], Any],
        _destinations: int,
        **_: Any,
    ) -> dict[int, Any]:
        received: dict[int, list[pa.RecordBatch]] = {}
        for task in tasks:
            for destination, batch in map_function(_sent(task)):
                received.setdefault(destination, []).append(batch)
        return {d: _sent(reduce_function(d, iter(batches))) for d, batches in sorted(received.items())}

    def stage(self, *_: Any) -> Any:
        return nullcontext()

    def advice(self) -> list[str]:
        return []

    def stop(self) -> None:
        pass


@contextmanager
def in_process() -> Generator[None]:
    """Tables attach to it meanwhile."""
    with mock.patch("pennon.table.Engine", return_value=InProcess()):
        yield


def _sent(value: Any) -> Any:
    return pickle.loads(dumps(value))
