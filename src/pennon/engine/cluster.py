"""A Spark session as the engine sees it, be it classic or Connect."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.engine.session import (
    check_running,
    choose_session,
    is_connect,
    is_embedded,
    stop_embedded,
    talking_to_spark,
)
from pennon.engine.spark_job import run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pennon.engine.progress import ProgressListener

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Cluster:
    def __init__(self, given: SparkSession | None) -> None:
        with talking_to_spark(), _hushed():
            self._spark = choose_session(given)
            self.embedded = is_embedded(self._spark)

    @property
    def session(self) -> SparkSession:
        """A session that was not stopped."""
        with talking_to_spark():
            check_running(self._spark)
        return self._spark

    @cached_property
    def parallelism(self) -> int:
        if not is_connect(self._spark):
            with talking_to_spark():
                return self.session.sparkContext.defaultParallelism
        # A client cannot ask for the number, but Spark cuts a range into as many partitions.
        partitions = (
            self._spark.range(1 << 16).selectExpr("spark_partition_id() AS part").selectExpr("max(part) + 1").collect()
        )
        return int(partitions[0][0])

    @property
    def master(self) -> str | None:
        """Unknown to a Connect client."""
        return None if is_connect(self._spark) else self._spark.sparkContext.master

    def setting(self, key: str, default: str) -> str:
        with talking_to_spark():
            return self._spark.conf.get(key, default) or default

    def numbers(self, count: int) -> DataFrame:
        """The numbers from 0, each in a partition of its own."""
        with talking_to_spark():
            return self.session.range(0, count, 1, count)

    def apply(self, frame: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
        with talking_to_spark(), _hushed():
            return frame.mapInArrow(function, schema)

    def deliver(self, blocks: DataFrame, destinations: int) -> DataFrame:
        """Every block in the partition of its destination."""
        with talking_to_spark():
            return blocks.repartitionById(destinations, "destination")

    def collect(
        self,
        name: str,
        frame: DataFrame,
        stages: dict[str, int],
        rows: int | None,
        listener: ProgressListener | None,
    ) -> pa.Table:
        """The rows of a frame; `stages` are the parts of the job in order, with the number of their tasks, and `rows`
        what each goes through, where that is known."""
        return run_job(self._spark, name, frame, stages, rows, listener)

    def stop(self) -> None:
        if self.embedded:
            stop_embedded()


@contextmanager
def _hushed() -> Generator[None]:
    """Without warnings that tell the user nothing."""
    with warnings.catch_warnings():
        # PySpark looks for pandas and complains of a new one, though only Arrow is used.
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        # Python and libraries with threads warn of the fork by which the JVM is started: the child does nothing but
        # become the JVM.
        warnings.filterwarnings("ignore", ".*fork")
        yield
