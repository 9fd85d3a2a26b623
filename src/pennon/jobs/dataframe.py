"""The rows of a filter as a DataFrame: planned here, through the indices, and read by one task for each part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pennon.engine.frames import Batches, MapRows, frame_schema
from pennon.engine.spark_engine import SparkEngine
from pennon.engine.spark_types import spark_form
from pennon.errors import UnsupportedColumn
from pennon.format.snapshot import Pin, Snapshot
from pennon.query.catalog import Catalog
from pennon.query.scan.request import METADATA_COLUMNS, ScanRequest
from pennon.query.scan.tasks import Part, plan_parts, read_part

if TYPE_CHECKING:
    from pennon.engine import DataFrame


def dataframe(engine: SparkEngine, catalog: Catalog, request: ScanRequest, rows_per_partition: int | None) -> DataFrame:
    """A lazy DataFrame over one version, with one partition for each part of the scan.

    Raises:
        InvalidFilter: the filter does not parse, or has no meaning over this table.
        ColumnNotFound: the table lacks a column.
        UnsupportedColumn: Spark has no type for a column.
    """
    schema = _spark_columns(catalog.snapshot, request)
    parts = plan_parts(catalog, request, rows_per_partition)
    try:
        columns = frame_schema(schema)
    except ValueError as error:
        raise UnsupportedColumn(f"Spark has no type for column {error}", "Name the columns to return") from error
    read = _ReadParts(catalog.snapshot.pin(), request, tuple(parts), schema)
    return engine.apply(engine.numbers(max(1, len(parts)), sum(part.rows for part in parts)), MapRows(read), columns)


@dataclass(frozen=True, eq=False)
class _ReadParts:
    """Numbers of parts to their rows."""

    pin: Pin
    request: ScanRequest
    parts: tuple[Part, ...]
    schema: pa.Schema

    def __call__(self, numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                if number < len(self.parts):
                    yield from self._read(self.parts[number])

    def _read(self, part: Part) -> Iterator[pa.RecordBatch]:
        for batch in read_part(self.pin, part, self.request):
            if batch.num_rows:
                columns = [_cast(batch.column(field.name), field.type) for field in self.schema]
                yield pa.record_batch(columns, schema=self.schema)


def _spark_columns(snapshot: Snapshot, request: ScanRequest) -> pa.Schema:
    names = list(snapshot.schema.names if request.columns is None else request.columns)
    wanted = {METADATA_COLUMNS[0]: request.with_row_id, METADATA_COLUMNS[1]: request.with_row_address}
    names += [name for name, given in wanted.items() if given and name not in names]
    return pa.schema([pa.field(name, _form(snapshot, name)) for name in names])


def _form(snapshot: Snapshot, name: str) -> pa.DataType:
    if name in METADATA_COLUMNS:
        return pa.int64()
    declared = snapshot.column(name).declared
    # As in the data source: Spark's type for times of day is still disabled.
    return pa.string() if pa.types.is_time(declared) else spark_form(declared)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    plain = values.storage if isinstance(values.type, pa.BaseExtensionType) else values
    # Spark's times have microseconds. All other values must be preserved.
    return plain if plain.type == type_ else pc.cast(plain, type_, safe="[ns" not in str(plain.type))
