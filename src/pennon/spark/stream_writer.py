"""Writes streams: every batch of a query is appended once, in one commit, and the indices are kept up.

Spark passes the number of a batch to `commit`, but not the id of the query. Tasks know it as a local property of their
job, and return it with what they wrote; it is the id in the checkpoint, and stays the same over restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as st
from pyspark.sql.datasource import WriterCommitMessage

from pennon.errors import InvalidArgument, SparkUnavailable
from pennon.events import EventKind
from pennon.format.append import Target, delete_rows, write_rows
from pennon.format.streamed_batches import Batch
from pennon.spark.errors import without_traceback
from pennon.spark.options import StreamOptions
from pennon.spark.types import cast_batch
from pennon.spark.upkeep import keep_up
from pennon.spark.writer import commit_write, log_write, plan_append

# Spark 4.0 has only streams of single rows.
try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _ArrowWriter
except ImportError:
    _ArrowWriter: Any = object

# Spark's local property of every job of a streaming query.
QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class StreamWritten(WriterCommitMessage):
    """The fragments that one task has written to a version of the table, for a query."""

    fragments: tuple[str, ...]
    version: int | None
    query: str | None


class PennonStreamWriter(_ArrowWriter):
    """Spark makes one for the tasks of each batch, and another for its commit."""

    def __init__(self, target: Target, options: StreamOptions) -> None:
        self.target = target
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamWritten:
        with without_traceback():
            rows = (cast_batch(batch, self.target.schema) for batch in iterator if batch.num_rows)
            return StreamWritten(tuple(write_rows(self.target, rows)), self.target.version, _query_id())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        with without_traceback():
            written = _written(messages)
            fragments = [text for message in written for text in message.fragments]
            if fragments:
                batch = Batch(self._stream(written), batchId)
                commit_write(_at(self.target, written[0].version), fragments, batch, self.options.unknown_batch)
            every = self.options.maintain
            if every is not None and (batchId + 1) % every == 0:
                keep_up(self.target.location)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        with without_traceback():
            written = _written(messages)
            fragments = [text for message in written for text in message.fragments]
            log_write(EventKind.DELETION, self.target, len(fragments), self.target.version)
            if fragments:
                delete_rows(_at(self.target, written[0].version), fragments)

    def _stream(self, written: Sequence[StreamWritten]) -> str:
        stream = self.options.write.txn_app_id or next((message.query for message in written if message.query), None)
        if stream is None:
            raise InvalidArgument(
                "Spark did not pass the id of the query to its tasks", "Name the stream with the option txn_app_id"
            )
        return stream


def plan_stream(options: StreamOptions, schema: st.StructType, overwrite: bool) -> PennonStreamWriter:
    """The writer of a stream. A table that does not exist is created without rows, so that every batch is an append."""
    if _ArrowWriter is object:
        raise SparkUnavailable("streams that write need Spark 4.1 or newer", "Write from foreachBatch")
    if overwrite:
        raise InvalidArgument(
            'a stream appends to a Lance table, and outputMode("complete") replaces it',
            'Use outputMode("append"), or foreachBatch with table.merge or a write with mode("overwrite")',
        )
    return PennonStreamWriter(plan_append(options.write, schema), options)


def _query_id() -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(QUERY_ID)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[StreamWritten]:
    return [message for message in messages if isinstance(message, StreamWritten)]


def _at(target: Target, version: int | None) -> Target:
    """The target that the tasks had: the writer of the commit may have seen a newer version."""
    return replace(target, version=version)
