"""Reads a table through Spark: each task reads one part of a scan that Pennon's planner made."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Pin
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, plan_parts, read_part
from pennon.spark.errors import without_traceback
from pennon.spark.types import arrow_schema, cast_batch, spark_schema

LOG = logging.getLogger("pennon.spark")


class PennonPartition(InputPartition):
    """A part of a planned scan, for a Spark task."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)

    def __repr__(self) -> str:
        return f"PennonPartition({self.value})"


@dataclass
class ReadPlan:
    """The reads of a DataFrame: columns of a pinned version, and the rows that a filter selects."""

    pin: Pin
    schema: pa.Schema  # of the columns to read, including metadata columns, in the table's types
    filter: str | None
    batch_size: int | None
    rows_per_partition: int | None

    @property
    def request(self) -> ScanRequest:
        names = self.schema.names
        return ScanRequest(
            self.filter,
            tuple(name for name in names if name not in (ROW_ID, ADDRESS)),
            with_row_id=ROW_ID in names,
            with_row_address=ADDRESS in names,
            batch_size=self.batch_size,
        )

    def parts(self) -> list[Part]:
        catalog = Catalog.read(self.pin.open(), SHARED_CACHE)
        return plan_parts(catalog, self.request, self.rows_per_partition)


class PennonReader(DataSourceReader):
    """Spark pickles it before it calls `partitions`, so it holds only the plan.

    It takes no filters from Spark (`pushFilters`). Spark (at least up to 4.3) keeps the reader that was given the
    filters of one query with the relation of the DataFrame (`PythonDataSourceV2.setReadInfo`), and the next query of
    that DataFrame, or the other side of a join with itself, reads the same rows without another call to the source.
    `partitions` and `read` receive nothing that identifies the query.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan

    def partitions(self) -> list[InputPartition]:
        with without_traceback():
            partitions: list[InputPartition] = [PennonPartition(part) for part in self.plan.parts()]
        LOG.info("%s, version %d: %s", self.plan.pin.location.shown, self.plan.pin.version, partitions)
        return partitions

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # No partitions: Spark passes the first up to 4.1, the second since then.
        if partition is None or partition.value is None:
            return
        wire = arrow_schema(spark_schema(self.plan.schema))
        with without_traceback():
            for batch in read_part(self.plan.pin, partition.value, self.plan.request):
                if batch.num_rows:
                    yield cast_batch(batch, wire)
