"""Spilling to disk: batches beyond the memory of a task go to a temporary file and are read from there.

Plans cut tasks so that this is not needed. It happens when a sample was misleading, or a user requests a few large
parts: then the task takes longer instead of being killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter

import pyarrow as pa

# Spark's directories for spilling, on the disks of the executor.
LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"


def buffered(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The same batches, safe to keep all at once: in memory, or mapped from a file if they exceed `limit` bytes. The
    kernel may drop the pages of such a file from memory at any time."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        if size > limit:
            yield from _mapped(chain(_emptied(kept), batches), batch.schema)
            return
    yield from kept


def batched_by_bytes(
    batches: Iterator[pa.RecordBatch], limit: int, bytes_of: Callable[[pa.RecordBatch], int] = attrgetter("nbytes")
) -> Iterator[list[pa.RecordBatch]]:
    """Groups of batches of at most `limit` bytes, each of at least one batch."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        own = bytes_of(batch)
        if some and size + own > limit:
            yield some
            some, size = [], 0
        some.append(batch)
        size += own
    if some:
        yield some


def spill_directory() -> str | None:
    """The directory of temporary files; None for the default of the system."""
    return os.environ.get(LOCAL_DIRECTORIES, "").split(",")[0] or None


def _mapped(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with tempfile.NamedTemporaryFile(prefix="pennon-spill-", dir=spill_directory()) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        mapped = pa.memory_map(file.name)
    # The file is unlinked; its bytes stay as long as a batch points to them.
    reader = pa.ipc.open_file(mapped)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _emptied(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches in order; each is removed from the list before it is used, so that its memory can be freed."""
    batches.reverse()
    while batches:
        yield batches.pop()
