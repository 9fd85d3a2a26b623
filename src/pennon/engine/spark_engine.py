"""The engine on Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from pennon.engine.blocks import SPARK_SCHEMA
from pennon.engine.engine import Exchanged, Sent
from pennon.engine.frames import MapTasks, Message, Packed
from pennon.engine.local_engine import LocalEngine
from pennon.engine.progress import ProgressListener, watched
from pennon.engine.settings import advice
from pennon.engine.tasks import RESULT_SCHEMA, ReceiveBlocks, ReduceRows, RunTasks, SendBlocks, dumps
from pennon.work import Work, count_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pennon.engine.cluster import ArrowFunction, Cluster

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R")


class SparkEngine:
    """Runs functions on a Spark session.

    Spark may run a task more than once, even one that has succeeded. Spark retries a failure that is not a
    `PennonError`, and when it gives up, the failure is raised as `TaskFailed`.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        progress: ProgressListener | None = None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Use the given session, else the active one, else an embedded local one that is started when the engine is
        first used. `around` wraps the tasks of small work in this process."""
        self._spark = spark
        self._progress = progress
        self._around = around

    @classmethod
    def attach(cls, spark: SparkSession | None = None, *, progress: ProgressListener | None = None) -> SparkEngine:
        """An engine whose session has been started."""
        engine = cls(spark, progress=progress)
        _ = engine._cluster
        return engine

    @cached_property
    def _cluster(self) -> Cluster:
        # Both import pyspark, which is slow to import.
        from pennon.engine.cluster import Cluster  # noqa: PLC0415
        from pennon.engine.session import starts_session  # noqa: PLC0415

        starts = self._spark is None and self._progress is not None and starts_session()
        with watched(self._progress if starts else None, "start Spark"):
            return Cluster(self._spark)

    @property
    def attached(self) -> bool:
        return "_cluster" in self.__dict__

    @property
    def parallelism(self) -> int:
        return self._cluster.parallelism

    @property
    def in_process(self) -> LocalEngine:
        return LocalEngine(progress=self._progress, around=self._around)

    @property
    def session(self) -> SparkSession:
        return self._cluster.session

    @property
    def embedded(self) -> bool:
        """Whether Pennon started the session itself."""
        return self._cluster.embedded

    def advice(self) -> list[str]:
        """Recommended settings for a session that Pennon was given, with reasons. The engine never changes them."""
        return [] if self.embedded else advice(self._cluster.setting, self._cluster.master, self._cluster.version)

    def stage(self, name: str, rows: int | None = None) -> AbstractContextManager[None]:
        return watched(self._progress, name, rows)

    def map(self, stage: str, function: Callable[[T], R], tasks: Sequence[T], *, rows: int | None = None) -> list[R]:
        if not tasks:
            return []
        run = RunTasks(function, [dumps(task) for task in tasks])
        results = self._cluster.apply(self._cluster.numbers(len(tasks)), run, RESULT_SCHEMA)
        values = self._values(stage, results, {stage: len(tasks)}, rows)
        return [values[number] for number in range(len(tasks))]

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
        if not tasks:
            return Exchanged([], {})
        send = SendBlocks(stage, map_function, [dumps(task) for task in tasks], destinations)
        blocks = self._cluster.apply(self._cluster.numbers(len(tasks)), send, SPARK_SCHEMA)
        # One destination more than the caller's, for the reports of the map tasks.
        delivered = self._cluster.deliver(blocks, destinations + 1)
        results = self._cluster.apply(delivered, ReceiveBlocks(reduce_function, destinations), RESULT_SCHEMA)
        parts = {f"{stage}: map": len(tasks), f"{stage}: reduce": destinations}
        values = self._values(stage, results, parts, rows)
        reports: dict[int, bytes] = values.pop(destinations)
        mapped: list[Any] = []
        for number in range(len(tasks)):
            report, work = pickle.loads(reports[number])
            count_work(work)
            mapped.append(report)
        return Exchanged(mapped, values)

    def numbers(self, count: int, rows: int = 0) -> DataFrame:
        """A frame of the numbers from 0, one in each partition, whose size Spark takes to be that of `rows` rows."""
        return self._cluster.numbers(count, rows)

    def apply(self, frame: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
        """Apply a function of `frames` to every partition of a frame, lazily."""
        return self._cluster.apply(frame, function, schema)

    def apply_to_tasks(
        self,
        function: Callable[[T], Iterator[pa.RecordBatch]],
        tasks: Sequence[T],
        schema: StructType | str,
        rows: int = 0,
    ) -> DataFrame:
        """The rows that a function returns for tasks, about `rows`, each task in a partition of its own, lazily."""
        run = MapTasks(function, [dumps(task) for task in tasks])
        return self._cluster.apply(self._cluster.numbers(max(1, len(tasks)), rows), run, schema)

    def deliver(
        self,
        frame: DataFrame,
        function: ArrowFunction,
        destinations: int,
        more: tuple[Callable[[T], Iterator[Message]], Sequence[T]] | None = None,
    ) -> DataFrame:
        """Send the messages that such a function yields for a frame to their destinations, sorted by place, lazily;
        with `more`, also those that another function yields for tasks.

        The order is always the same, also within one place: a task that runs again must return the same rows, or Spark
        fails the job if other tasks have already used them.
        """
        messages = self._cluster.apply(frame, function, SPARK_SCHEMA)
        if more is not None:
            messages = messages.union(self.apply_to_tasks(Packed(more[0]), more[1], SPARK_SCHEMA))
        return self._cluster.deliver(messages, destinations).sortWithinPartitions("place", "block")

    def map_frame(self, stage: str, frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], R]) -> list[R]:
        """The results of `function` for the rows of every partition of a frame, which is evaluated once. If a task of
        the partition fails, it is evaluated again, and the function is called again."""
        results = self._cluster.apply(frame, ReduceRows(function), RESULT_SCHEMA)
        values = self._values(stage, results, {stage: self.parallelism}, None)
        return [values[number] for number in sorted(values)]

    def stop(self) -> None:
        """Stops the session if Pennon started it."""
        self._cluster.stop()

    def _values(self, stage: str, results: DataFrame, parts: dict[str, int], rows: int | None) -> dict[int, Any]:
        """The results of the tasks by task or destination; raises the error that one of them raised."""
        collected = self._cluster.collect(stage, results, parts, rows, self._progress)
        columns = (collected.column(name).to_pylist() for name in ("key", "failed", "payload"))
        values: dict[int, Any] = {}
        for key, failed, payload in sorted(zip(*columns, strict=True)):
            value = pickle.loads(payload)
            if failed:
                raise value
            values[key], work = value
            count_work(work)
        count_work(Work(tasks=sum(parts.values()), rows_read=rows or 0))
        return values
