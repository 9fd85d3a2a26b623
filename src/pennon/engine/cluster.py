"""A Spark session as the engine uses it, classic or Connect."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark

from pennon.engine.older_sparks import (
    BYTES_PER_BATCH,
    REPARTITION_BY_ID,
    repartition_by_key,
    session_for_blocks,
    version_of,
)
from pennon.engine.session import (
    check_running,
    choose_session,
    is_connect,
    is_embedded,
    spark_errors_translated,
    stop_embedded,
)
from pennon.engine.spark_job import run_job
from pennon.engine.worker_python import drivers_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pennon.engine.progress import ProgressListener

# Spark counts up to here in a fraction of a second, and never broadcasts a frame of this size.
MOST_COUNTED = 1 << 28

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Cluster:
    def __init__(self, given: SparkSession | None) -> None:
        with spark_errors_translated(), _warnings_suppressed():
            self._spark = choose_session(given)
            self.embedded = is_embedded(self._spark)
            self.version = min(version_of(self._spark.version), version_of(pyspark.__version__))

    @property
    def session(self) -> SparkSession:
        """A session that was not stopped."""
        with spark_errors_translated():
            check_running(self._spark)
        return self._spark

    @cached_property
    def parallelism(self) -> int:
        if not is_connect(self._spark):
            with spark_errors_translated():
                return self.session.sparkContext.defaultParallelism
        # A Connect client cannot read the number, but Spark cuts a range into that many partitions.
        partitions = (
            self._spark.range(1 << 16).selectExpr("spark_partition_id() AS part").selectExpr("max(part) + 1").collect()
        )
        return int(partitions[0][0])

    @property
    def master(self) -> str | None:
        """Unknown to a Connect client."""
        return None if is_connect(self._spark) else self._spark.sparkContext.master

    def setting(self, key: str, default: str) -> str:
        with spark_errors_translated():
            return self._spark.conf.get(key, default) or default

    def numbers(self, count: int, rows: int = 0) -> DataFrame:
        """The numbers from 0, one in each partition. `rows` are those that will come of them: Spark derives the size of
        a frame from that of its source, and broadcasts in joins what it takes to be small."""
        with spark_errors_translated():
            check_running(self._spark)
            step = -(-min(rows, MOST_COUNTED) // count)
            if step <= 1:
                return self._block_session.range(0, count, 1, count)
            counted = self._block_session.range(0, count * step, 1, count)
            return counted.where(f"id % {step} = 0").selectExpr(f"id DIV {step} AS id")

    @cached_property
    def _block_session(self) -> SparkSession:
        """The session of Pennon's own frames."""
        if self.version >= BYTES_PER_BATCH or is_connect(self._spark):
            return self._spark
        return session_for_blocks(self._spark)

    def apply(self, frame: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
        with spark_errors_translated(), _warnings_suppressed(), drivers_python(self._spark):
            return frame.mapInArrow(function, schema)

    def deliver(self, blocks: DataFrame, destinations: int) -> DataFrame:
        """Repartition: every block goes to the partition of its destination."""
        with spark_errors_translated():
            if self.version < REPARTITION_BY_ID:
                return repartition_by_key(blocks, destinations)
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
        the number of rows that each reads, if known."""
        return run_job(self._spark, name, frame, stages, rows, listener)

    def stop(self) -> None:
        if self.embedded:
            stop_embedded()


@contextmanager
def _warnings_suppressed() -> Generator[None]:
    """Suppress warnings that are of no use to the user."""
    with warnings.catch_warnings():
        # PySpark looks for pandas and warns about new versions, though only Arrow is used.
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        # Python and libraries with threads warn about the fork that starts the JVM: the child only becomes the JVM.
        warnings.filterwarnings("ignore", ".*fork")
        # PySpark 3.5 compares versions by a module that Python was about to remove.
        warnings.filterwarnings("ignore", ".*distutils", DeprecationWarning)
        yield
