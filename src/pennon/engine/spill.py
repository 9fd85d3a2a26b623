"""What a task receives beyond its memory goes to a file of its own and is read from there.

Plans cut work so that this is not needed. It is where a sample has misled them, or a user asks for few and large parts:
then the task takes longer, instead of being killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

# Where Spark keeps its own, on the executor's disks.
LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"


def held(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The same batches, to be kept all at once: in memory, or mapped from a file if they are larger than the limit.
    The kernel may drop the pages of such a file from memory at any time."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        if size > limit:
            yield from _mapped(chain(_emptied(kept), batches), batch.schema)
            return
    yield from kept


def within(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches by as many as the limit holds, one at least."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if some and size + batch.nbytes > limit:
            yield some
            some, size = [], 0
        some.append(batch)
        size += batch.nbytes
    if some:
        yield some


def spill_directory() -> str | None:
    """Where temporary files go; None: where the system has them."""
    return os.environ.get(LOCAL_DIRECTORIES, "").split(",")[0] or None


def _mapped(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with tempfile.NamedTemporaryFile(prefix="pennon-spill-", dir=spill_directory()) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        mapped = pa.memory_map(file.name)
    # The name is gone; the bytes stay as long as a batch points to them.
    reader = pa.ipc.open_file(mapped)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _emptied(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each is let go once it was used."""
    batches.reverse()
    while batches:
        yield batches.pop()
