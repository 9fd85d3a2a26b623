"""Writes rows through Spark: tasks write fragments, and the driver commits them in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pennon.errors import ColumnNotFound, CommitConflict, InvalidArgument
from pennon.events import Event, EventKind, emit
from pennon.format.append import Target, commit_rows, create_empty, delete_rows, find_table, write_rows
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Snapshot
from pennon.format.streamed_batches import Batch, UnknownBatch, commit_batch
from pennon.spark.errors import without_traceback
from pennon.spark.options import WriteOptions
from pennon.spark.types import arrow_type, cast_batch, spark_type
from pennon.wording import nearest_names, plural

LOG = logging.getLogger("pennon.spark")

# Spark's types in the order of widening: later ones can hold the values of earlier ones.
_WIDER = (
    (st.ByteType, st.ShortType, st.IntegerType, st.LongType),
    (st.FloatType, st.DoubleType),
)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The fragments that one task has written."""

    fragments: tuple[str, ...]


class PennonWriter(DataSourceArrowWriter):
    """Commits what tasks wrote; with a `batch`, once."""

    def __init__(self, target: Target, batch: Batch | None = None) -> None:
        self.target = target
        self.batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        with without_traceback():
            rows = (cast_batch(batch, self.target.schema) for batch in iterator if batch.num_rows)
            return Written(tuple(write_rows(self.target, rows)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with without_traceback():
            commit_write(self.target, _fragments(messages), self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with without_traceback():
            fragments = _fragments(messages)
            log_write(EventKind.DELETION, self.target, len(fragments), self.target.version)
            delete_rows(self.target, fragments)


def commit_write(
    target: Target, fragments: list[str], batch: Batch | None = None, unknown: UnknownBatch = UnknownBatch.FAIL
) -> None:
    """Commit what tasks wrote. The files of a batch that was appended before are deleted."""
    try:
        if batch is None:
            version = commit_rows(target, fragments)
        else:
            version = commit_batch(target, batch, fragments, unknown) if fragments else target.version
    except CommitConflict:
        log_write(EventKind.CONFLICT, target, len(fragments), target.version)
        raise
    if version is None:
        LOG.warning("%s was appended to %s before, and is skipped", batch, target.location.shown)
        delete_rows(target, fragments)
    else:
        log_write(EventKind.COMMIT, target, len(fragments), version)


def log_write(kind: EventKind, target: Target, fragments: int, version: int | None) -> None:
    uri, what = target.location.shown, plural(fragments, "fragment")
    messages = {
        EventKind.COMMIT: f"committed version {version} of {uri}: write {what}",
        EventKind.CONFLICT: f"conflict on version {version} of {uri}: write {what}",
        EventKind.DELETION: f"deleting {what} of {uri}: the write failed",
    }
    details = {"change": f"write {what}"}
    emit(LOG, logging.INFO, Event(kind, uri, messages[kind], (), version, {"fragments": fragments}, details))


def plan_once(options: WriteOptions, schema: st.StructType, overwrite: bool) -> PennonWriter:
    """The writer of a batch that is named by the options `txn_app_id` and `txn_version`."""
    if options.txn_app_id is None or options.txn_version is None:
        raise InvalidArgument("the option txn_app_id needs txn_version", "Pass a number that grows from write to write")
    if overwrite:
        raise InvalidArgument("the options txn_app_id and txn_version are for appends", 'Use mode("append")')
    return PennonWriter(plan_append(options, schema), Batch(options.txn_app_id, options.txn_version))


def plan_append(options: WriteOptions, schema: st.StructType) -> Target:
    """The target of an append. A table that does not exist is created without rows."""
    target = plan_write(options, schema, overwrite=False)
    if target.version is None:
        create_empty(target)
        target = plan_write(options, schema, overwrite=False)
    return target


def plan_write(options: WriteOptions, schema: st.StructType, overwrite: bool) -> Target:
    table = find_table(options.location)
    _check_names(schema)
    if table is None:
        fields = [_new_field(field, options) for field in schema.fields]
    elif overwrite:
        fields = [_kept_field(field, table, options) for field in schema.fields]
    else:
        fields = _same_fields(schema, table)
    unknown = [name for name, _ in options.vector_columns if name not in schema.names]
    if unknown:
        raise ColumnNotFound(
            f"vector_columns lists {unknown[0]!r}, which the rows do not have", f"They have: {_few(schema)}"
        )
    if table is not None and options.enable_stable_row_ids and not table.manifest.has_stable_row_ids:
        raise InvalidArgument(
            f"table {table.uri} has no stable row ids, and only a new table can get them", "Write to another address"
        )
    return Target(
        options.location,
        pa.schema(fields),
        None if table is None else table.version,
        overwrite,
        options.max_rows_per_file,
        options.enable_stable_row_ids,
    )


def _fragments(messages: list[WriterCommitMessage | None]) -> list[str]:
    return [text for message in messages if isinstance(message, Written) for text in message.fragments]


def _check_names(schema: st.StructType) -> None:
    """Lance refuses some names, and writes others that cannot be read."""
    for name in schema.names:
        if not name or any(sign in name for sign in ".`\0") or name in (ROW_ID, ADDRESS):
            raise InvalidArgument(f"a Lance table cannot have a column {name!r}", "Rename it")


def _new_field(field: st.StructField, options: WriteOptions) -> pa.Field:
    size = dict(options.vector_columns).get(field.name)
    if size is None:
        return pa.field(field.name, arrow_type(field.dataType, field.name))
    if not isinstance(field.dataType, st.ArrayType) or type(field.dataType.elementType) not in _WIDER[1]:
        raise InvalidArgument(
            f"column {field.name!r} has type {field.dataType.simpleString()}, which cannot be converted to vectors",
            "Cast it to array<float>",
        )
    return pa.field(field.name, pa.list_(arrow_type(field.dataType.elementType, field.name), size))


def _kept_field(field: st.StructField, table: Snapshot, options: WriteOptions) -> pa.Field:
    """A column that does not change keeps its type: vectors stay vectors."""
    schema: pa.Schema = table.schema
    place = schema.get_field_index(field.name)
    if place >= 0 and field.name not in dict(options.vector_columns):
        own = schema.field(place)
        if _same(field.dataType, spark_type(own.type, own.name)):
            return pa.field(own.name, own.type)
    return _new_field(field, options)


def _same_fields(schema: st.StructType, table: Snapshot) -> list[pa.Field]:
    """The table's fields, if the rows have exactly these."""
    fields: list[pa.Field] = list(table.schema)
    names = [field.name for field in fields]
    for name in schema.names:
        if name not in names:
            near = ", ".join(nearest_names(name, names))
            raise ColumnNotFound(
                f"table {table.uri} has no column {name!r}", f"Rename or drop it; similar names: {near}"
            )
    for field in fields:
        if field.name not in schema.names:
            raise ColumnNotFound(
                f"the rows lack column {field.name!r} of table {table.uri}", "Add it, with NULLs if necessary"
            )
        given, own = schema[field.name].dataType, spark_type(field.type, field.name)
        if not _fits(given, own):
            wrong, right = given.simpleString(), own.simpleString()
            raise InvalidArgument(
                f"column {field.name!r} of table {table.uri} has type {right}, not {wrong}", "Cast it before writing"
            )
    return fields


def _fits(given: st.DataType, own: st.DataType) -> bool:
    """Whether values of one type are values of another, or can be converted without loss. Vectors may be rounded."""
    if isinstance(given, st.ArrayType) and isinstance(own, st.ArrayType):
        vectors = {type(given.elementType), type(own.elementType)} <= {st.FloatType, st.DoubleType}
        return vectors or _fits(given.elementType, own.elementType)
    wider = any(
        type(given) in row and type(own) in row and row.index(type(given)) <= row.index(type(own)) for row in _WIDER
    )
    return wider or isinstance(given, st.NullType) or _same(given, own)


def _same(given: st.DataType, own: st.DataType) -> bool:
    return given.simpleString() == own.simpleString()


def _few(schema: st.StructType) -> str:
    return ", ".join(schema.names[:10])
