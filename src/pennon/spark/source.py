"""The data source `pennon`."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pennon.errors import ColumnNotFound, InvalidArgument
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Pin, Snapshot
from pennon.query.scan.execute import parse
from pennon.spark.errors import without_traceback
from pennon.spark.options import (
    ReadOptions,
    read_options,
    stream_read_options,
    stream_write_options,
    write_options,
)
from pennon.spark.reader import PennonReader, ReadPlan
from pennon.spark.stream_reader import PennonStreamReader, plan_stream_read
from pennon.spark.stream_writer import PennonStreamWriter, plan_stream
from pennon.spark.types import spark_schema
from pennon.spark.writer import PennonWriter, plan_once, plan_write
from pennon.wording import did_you_mean


class PennonSource(DataSource):
    """A Lance table. The version is pinned with the schema, so that a DataFrame always reads the same rows."""

    _pin: Pin | None = None

    @classmethod
    def name(cls) -> str:
        return "pennon"

    def schema(self) -> StructType:
        with without_traceback():
            return spark_schema(self._plan().schema)

    def reader(self, schema: StructType) -> PennonReader:
        """A schema given by the user selects columns; their types are the table's."""
        with without_traceback():
            return PennonReader(self._chosen(schema))

    def writer(self, schema: StructType, overwrite: bool) -> PennonWriter:
        with without_traceback():
            options = write_options(self.options)
            if options.txn_app_id is not None:
                return plan_once(options, schema, overwrite)
            return PennonWriter(plan_write(options, schema, overwrite))

    def streamReader(self, schema: StructType) -> PennonStreamReader:  # noqa: N802  Spark's name
        with without_traceback():
            options = stream_read_options(self.options)
            return plan_stream_read(self._chosen(schema), options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PennonStreamWriter:  # noqa: N802  Spark's name
        with without_traceback():
            return plan_stream(stream_write_options(self.options), schema, overwrite)

    def _chosen(self, schema: StructType) -> ReadPlan:
        plan = self._plan()
        known = spark_schema(plan.schema)
        if schema.names != known.names:
            plan.schema = chosen_columns(plan.schema, schema.names, plan.pin.location.shown)
            known = spark_schema(plan.schema)
        for given, own in zip(schema.fields, known.fields, strict=True):
            wrong, right = given.dataType.simpleString(), own.dataType.simpleString()
            if wrong != right:
                raise InvalidArgument(
                    f"column {own.name!r} has type {right}, not {wrong}", "Read it with its type, then cast it"
                )
        return plan

    def _plan(self) -> ReadPlan:
        options = read_options(self.options)
        if self._pin is None:
            self._pin = Snapshot.open(options.location, options.version).pin()
        snapshot = self._pin.open()
        if options.filter is not None:
            parse(snapshot, options.filter)
        return plan_read(self._pin, options)


def plan_read(pin: Pin, options: ReadOptions) -> ReadPlan:
    fields: pa.Schema = pin.open().schema
    names = list(fields.names if options.columns is None else options.columns)
    names += [n for n, wanted in ((ROW_ID, options.with_row_id), (ADDRESS, options.with_row_address)) if wanted]
    return ReadPlan(
        pin,
        chosen_columns(fields, list(dict.fromkeys(names)), pin.location.shown),
        options.filter,
        options.batch_size,
        options.rows_per_partition,
    )


def chosen_columns(schema: pa.Schema, names: list[str], table: str) -> pa.Schema:
    """Columns of a table, possibly its metadata columns."""
    for name in names:
        if name not in (ROW_ID, ADDRESS) and schema.get_field_index(name) < 0:
            problem = f"table {table} has no top-level column {name!r}"
            raise ColumnNotFound(problem, did_you_mean(name, schema.names))
    return pa.schema(
        [pa.field(name, pa.uint64()) if name in (ROW_ID, ADDRESS) else schema.field(name) for name in names]
    )
