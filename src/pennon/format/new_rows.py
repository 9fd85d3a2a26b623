"""Write rows as fragments that no version names yet, with the columns and types of a version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.append import Target, write_rows
from pennon.format.row_changes import NewFragment
from pennon.format.row_ids import RowIds
from pennon.format.snapshot import Snapshot

# As pylance's default.
ROWS_PER_FILE = 1 << 20
BLOBS = (b"lance-encoding:blob", b"lance-schema:storage-class")
BLOB_EXTENSION = "lance.blob.v2"


def write_new_rows(snapshot: Snapshot, batches: Iterable[pa.RecordBatch]) -> list[NewFragment]:
    """Write rows that have the table's columns, in its types. Nothing is written if there are none.

    Raises:
        InvalidArgument: a NULL in a column that cannot hold it.
    """
    schema: pa.Schema = snapshot.schema
    target = Target(
        snapshot.location, schema, snapshot.version, False, ROWS_PER_FILE, snapshot.manifest.has_stable_row_ids
    )
    failures: list[Exception] = []

    def checked() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                if batch.num_rows:
                    refuse_nulls(batch, schema, snapshot.uri)
                    yield batch
        except Exception as error:
            failures.append(error)
            raise

    try:
        return [NewFragment(text) for text in write_rows(target, checked(), snapshot)]
    except OSError:
        # pylance turns an error of the rows into text.
        if failures:
            raise failures[0] from None
        raise


def with_row_ids(fragments: list[NewFragment], ids: RowIds) -> list[NewFragment]:
    """Fragments whose rows keep row ids, given in the order in which the rows were written."""
    kept: list[NewFragment] = []
    start = 0
    for fragment in fragments:
        kept.append(NewFragment(fragment.metadata, ids[start : start + fragment.rows]))
        start += fragment.rows
    return kept


def refuse_nulls(batch: pa.RecordBatch, schema: pa.Schema, table: str) -> None:
    for field in schema:
        if not field.nullable and batch.column(field.name).null_count:
            raise InvalidArgument(f"column {field.name!r} of {table} cannot hold NULL", "Give every row a value")


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, by name, in its types. Raises pa.ArrowInvalid for a value that does not fit."""
    return pa.record_batch([conformed_array(batch.column(f.name), f.type) for f in schema], schema=schema)


def conformed_array(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if values.type == type_:
        return values
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, values.cast(type_.storage_type))
    return values.cast(type_)


def refuse_blobs(snapshot: Snapshot) -> None:
    """Rows with blobs cannot be written again: a scan returns where the bytes are, not the bytes."""
    for field in snapshot.schema:
        metadata = field.metadata or {}
        extension = getattr(field.type, "extension_name", "") or metadata.get(b"ARROW:extension:name", b"").decode()
        if any(key in metadata for key in BLOBS) or extension == BLOB_EXTENSION:
            raise UnsupportedColumn(
                f"column {field.name!r} of {snapshot.uri} holds blobs, and rows with blobs cannot be written again",
                "Delete the rows and append new ones",
            )
