"""Record batches as rows that Spark can shuffle: few, binary, and read without copying.

A row is `(destination int, failed boolean, block binary, place long)`; sort by `place` to read the blocks of a
destination in order. A block is one Arrow IPC stream: the schema, the record batches of one piece (and their
dictionaries), the end mark; its length is a multiple of 8, so that the next block in the same buffer stays aligned. A
row whose `failed` is set holds a pickled error instead of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from pennon.errors import BuildFailed

SPARK_SCHEMA = "destination int, failed boolean, block binary, place long"
ARROW_SCHEMA = pa.schema(
    [("destination", pa.int32()), ("failed", pa.bool_()), ("block", pa.binary()), ("place", pa.int64())]
)

# Small enough to stay in a processor's cache on its way through the JVM, large enough that the cost per row is
# negligible. It also bounds the data that Spark collects before a reducer reads it:
# `spark.sql.execution.arrow.maxBytesPerBatch` (64 MiB unless set) plus one block, since a batch is closed by the row
# that crosses the limit.
BLOCK_BYTES = 2 << 20
# Bytes of blocks in one record batch that is sent to the JVM.
PACK_BYTES = 8 << 20
# The JVM keeps a row in one array, of at most 2 GiB, and doubles it as it grows.
LARGEST_BLOCK = 1 << 30


class Packer:
    """Collects batches for their destinations and packs them into record batches of blocks."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        # Of all blocks that were added.
        self.packed_bytes = 0

    def add(self, destination: int, batch: pa.RecordBatch, place: int = 0) -> Iterator[pa.RecordBatch]:
        for piece in pieces(batch):
            size = _stream_size(piece)
            if size > LARGEST_BLOCK:
                raise BuildFailed(
                    f"{piece.num_rows} row(s) that cannot be cut further take {size:,} bytes; Spark moves at most "
                    f"{LARGEST_BLOCK:,} at once"
                )
            if self._waiting and self._bytes + size > PACK_BYTES:
                yield from self.flush()
            self._waiting.append((destination, place, piece, size))
            self._bytes += size
            self.packed_bytes += size

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self._waiting:
            waiting, size = self._waiting, self._bytes
            self._waiting, self._bytes = [], 0
            yield _pack(waiting, size)


def failure_rows(destinations: int, error: bytes) -> pa.RecordBatch:
    """The same error for every destination."""
    columns = [
        pa.array(range(destinations), pa.int32()),
        pa.array([True] * destinations),
        pa.array([error] * destinations, pa.binary()),
        pa.array([0] * destinations, pa.int64()),
    ]
    return pa.record_batch(columns, schema=ARROW_SCHEMA)


def unpack(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The record batches of all blocks. They reference the memory of the blocks."""
    blocks = rows.column("block")
    # Slice by offsets, because pyarrow copies a binary value when it is taken out of its array.
    _, offsets, data = blocks.buffers()
    # Spark uses large binaries if the session is configured so.
    offset_type = pa.int64() if pa.types.is_large_binary(blocks.type) else pa.int32()
    bounds = pa.Array.from_buffers(offset_type, len(blocks) + 1, [None, offsets], offset=blocks.offset).to_pylist()
    for start, end in pairwise(bounds):
        yield from pa.ipc.open_stream(data.slice(start, end - start))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch halved until every piece fits a block."""
    size = batch.nbytes
    if size <= BLOCK_BYTES or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    halves = batch.slice(0, middle), batch.slice(middle)
    # Every piece includes all dictionaries and string views: once they outweigh the rest, cutting only adds copies.
    if sum(half.nbytes for half in halves) > size + size // 2:
        yield batch
        return
    for half in halves:
        yield from pieces(half)


def block_of(piece: pa.RecordBatch) -> pa.Buffer:
    """Copy a piece into one block of exactly its size."""
    buffer = pa.allocate_buffer(_stream_size(piece))
    _write_stream(pa.FixedSizeBufferWriter(buffer), piece)
    return buffer


# Destination, place, piece, and the size of its stream.
_Waiting = tuple[int, int, pa.RecordBatch, int]


def _pack(waiting: list[_Waiting], size: int) -> pa.RecordBatch:
    # One buffer allocated up front: pyarrow would copy blocks given as Python bytes a second time, and leaks them.
    buffer = pa.allocate_buffer(size)
    sink = pa.FixedSizeBufferWriter(buffer)
    offsets = [0]
    for _, _, piece, length in waiting:
        _write_stream(sink, piece)
        offsets.append(offsets[-1] + length)
    blocks = pa.Array.from_buffers(
        pa.binary(), len(waiting), [None, pa.array(offsets, pa.int32()).buffers()[1], buffer], null_count=0
    )
    destinations = pa.array([destination for destination, _, _, _ in waiting], pa.int32())
    places = pa.array([place for _, place, _, _ in waiting], pa.int64())
    failed = pa.array([False] * len(waiting))
    return pa.record_batch([destinations, failed, blocks, places], schema=ARROW_SCHEMA)


def _stream_size(piece: pa.RecordBatch) -> int:
    sink = pa.MockOutputStream()
    _write_stream(sink, piece)
    return sink.size()


def _write_stream(sink: pa.NativeFile, piece: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, piece.schema) as writer:
        writer.write_batch(piece)
