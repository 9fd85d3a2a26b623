"""Posting lists between memory and the columns of an invert file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.index.arrays import Bytes, Int64s, UInt32s
from pennon.index.inverted.postings.decode_kernels import decode_lists, decode_streams
from pennon.index.inverted.postings.digest_kernels import digest_lists, digest_streams
from pennon.index.inverted.postings.encode_kernels import BLOCK, SUPERBLOCK, encode_lists
from pennon.index.inverted.scoring import Statistics

_BINARIES = pa.list_(pa.field("item", pa.large_binary()))
_NUMBERS = pa.list_(pa.field("item", pa.uint32()))
POSTING, MAX_SCORE, LENGTH, IMPACTS = "_posting", "_max_score", "_length", "_impacts"
POSITIONS, POSITION_BLOCKS = "_compressed_position", "_position_block_offset"
REMEDY = "Rebuild the index"


def invert_schema(with_positions: bool) -> pa.Schema:
    """The columns of an invert file."""
    columns = [(POSTING, _BINARIES), (MAX_SCORE, pa.float32()), (LENGTH, pa.uint32()), (IMPACTS, _BINARIES)]
    if with_positions:
        columns += [(POSITIONS, pa.large_binary()), (POSITION_BLOCKS, _NUMBERS)]
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in columns])


@dataclass(frozen=True, eq=False)
class PostingLists:
    """Postings of terms that follow one another, ends counted from 0; positions follow the order of the postings."""

    ends: Int64s
    docs: UInt32s
    freqs: UInt32s
    positions: UInt32s | None = None


def encode(lists: PostingLists, lengths: UInt32s, statistics: Statistics) -> pa.RecordBatch:
    """Rows of an invert file. `lengths` are the tokens of all documents of the partition."""
    sizes = np.diff(lists.ends)
    term_blocks = _ends(-(-sizes // BLOCK))
    blocks, entries = int(term_blocks[-1]), int(term_blocks[-1] + (-(-sizes // SUPERBLOCK)).sum())
    postings, positions = int(sizes.sum()), lists.positions
    with_positions = positions is not None
    taken = positions if positions is not None else np.empty(0, dtype=np.uint32)
    # The most that each may take, which the system provides as it is used.
    block_data, block_ends = np.empty(14 * blocks + 10 * postings, dtype=np.uint8), _zeros(blocks + 1)
    impact_data, impact_ends = np.empty(16 * entries + 12 * postings, dtype=np.uint8), _zeros(entries + 1)
    stream_data, stream_ends = np.empty(5 * len(taken) + 16, dtype=np.uint8), _zeros(len(sizes) + 1)
    scores, impact_terms = np.empty(len(sizes), dtype=np.float32), np.zeros(len(sizes) + 1, dtype=np.int32)
    stream_blocks = np.empty(blocks if with_positions else 0, dtype=np.uint32)
    given = lists.ends, lists.docs, lists.freqs, lengths, taken
    used = encode_lists(
        *given,
        statistics.num_docs,
        statistics.average,
        with_positions,
        *(block_data, block_ends, scores),
        *(impact_data, impact_ends, impact_terms),
        *(stream_data, stream_ends, stream_blocks),
    )
    list_ends = pa.array(term_blocks.astype(np.int32))
    columns: list[pa.Array] = [
        pa.ListArray.from_arrays(list_ends, _binaries(block_data[: used[0]], block_ends), type=_BINARIES),
        pa.array(scores),
        pa.array(sizes.astype(np.uint32)),
        pa.ListArray.from_arrays(
            pa.array(impact_terms), _binaries(impact_data[: used[1]], impact_ends), type=_BINARIES
        ),
    ]
    if with_positions:
        columns.append(_binaries(stream_data[: used[2]], stream_ends))
        columns.append(pa.ListArray.from_arrays(list_ends, pa.array(stream_blocks), type=_NUMBERS))
    return pa.record_batch(columns, schema=invert_schema(with_positions))


@dataclass(frozen=True, eq=False)
class EncodedLists:
    """Rows of an invert file as they were read: bytes, and where blocks, entries and streams end in them."""

    sizes: Int64s
    term_blocks: Int64s
    block_data: Bytes
    block_ends: Int64s
    impact_terms: Int64s
    impact_data: Bytes
    impact_ends: Int64s
    where: str
    stream_data: Bytes | None = None
    stream_ends: Int64s | None = None
    stream_blocks: UInt32s | None = None

    @classmethod
    def of(cls, table: pa.Table | pa.RecordBatch, where: str) -> EncodedLists:
        """Checks how many blocks and entries there are; what is in them is checked as it is decoded."""
        sizes = _flat(table, LENGTH, where).to_numpy().astype(np.int64)
        term_blocks, block_data, block_ends = _lists(table, POSTING, where)
        impact_terms, impact_data, impact_ends = _lists(table, IMPACTS, where)
        blocks = -(-sizes // BLOCK)
        entries = blocks - (-sizes // SUPERBLOCK)
        valid = np.array_equal(np.diff(term_blocks), blocks) and np.array_equal(np.diff(impact_terms), entries)
        found = cls(sizes, term_blocks, block_data, block_ends, impact_terms, impact_data, impact_ends, where)
        if not valid:
            raise found.damaged()
        if POSITIONS not in table.schema.names:
            return found
        stream_data, stream_ends = _bytes(_flat(table, POSITIONS, where))
        numbers = _flat(table, POSITION_BLOCKS, where)
        stream_terms = numbers.offsets.to_numpy().astype(np.int64)
        stream_blocks = numbers.values.to_numpy()[stream_terms[0] : stream_terms[-1]]
        if not np.array_equal(np.diff(stream_terms), blocks):
            raise found.damaged()
        return cls(*found._columns(), where, stream_data, stream_ends, stream_blocks)

    def decode(self, limit: int) -> PostingLists:
        """All postings, of documents below `limit`."""
        ends = _ends(self.sizes)
        if len(self.sizes) and (self.sizes.max() > limit or self.sizes.min() < 1):
            raise self.damaged()
        docs, freqs = np.empty(ends[-1], dtype=np.uint32), np.empty(ends[-1], dtype=np.uint32)
        if not decode_lists(self.block_data, self.block_ends, self.term_blocks, ends, limit, docs, freqs):
            raise self.damaged()
        if self.stream_data is None or self.stream_ends is None or self.stream_blocks is None:
            return PostingLists(ends, docs, freqs)
        total = int(freqs.sum(dtype=np.int64))
        if total > BLOCK * len(self.stream_data):
            # A byte encodes at most 128 positions.
            raise self.damaged()
        positions = np.empty(total, dtype=np.uint32)
        streams = self.stream_data, self.stream_ends, self.stream_blocks
        if decode_streams(*streams, self.term_blocks, ends, freqs, positions) != total:
            raise self.damaged()
        return PostingLists(ends, docs, freqs, positions)

    def digests(self) -> UInt32s:
        """A digest of each list without its positions."""
        found = np.empty(len(self.sizes), dtype=np.uint32)
        digest_lists(*self._columns(), found)
        return found

    def stream_digests(self) -> UInt32s | None:
        """A digest of the positions of each list, where there are some."""
        if self.stream_data is None or self.stream_ends is None or self.stream_blocks is None:
            return None
        found = np.empty(len(self.sizes), dtype=np.uint32)
        digest_streams(self.term_blocks, self.stream_data, self.stream_ends, self.stream_blocks, found)
        return found

    def damaged(self) -> DamagedFile:
        return DamagedFile(f"a posting list in {self.where} is damaged", REMEDY)

    def _columns(self) -> tuple[Int64s, Int64s, Bytes, Int64s, Int64s, Bytes, Int64s]:
        blocks = self.term_blocks, self.block_data, self.block_ends
        return self.sizes, *blocks, self.impact_terms, self.impact_data, self.impact_ends


def _flat(table: pa.Table | pa.RecordBatch, name: str, where: str) -> pa.Array:
    if name not in table.schema.names:
        raise DamagedFile(f"{where} has no column {name}", REMEDY)
    column = table.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.type != invert_schema(True).field(name).type or column.null_count:
        raise DamagedFile(f"column {name} in {where} has type {column.type} or NULLs", REMEDY)
    return column


def _lists(table: pa.Table | pa.RecordBatch, name: str, where: str) -> tuple[Int64s, Bytes, Int64s]:
    """Items before each list, from 0, the bytes of the items and where they end."""
    column = _flat(table, name, where)
    terms = column.offsets.to_numpy().astype(np.int64)
    items = column.values.slice(terms[0], terms[-1] - terms[0])
    if items.null_count:
        raise DamagedFile(f"column {name} in {where} has NULLs", REMEDY)
    return terms - terms[0], *_bytes(items)


def _bytes(items: pa.Array) -> tuple[Bytes, Int64s]:
    content = items.buffers()[2]
    data = np.frombuffer(content, dtype=np.uint8) if content is not None else np.empty(0, dtype=np.uint8)
    if not len(items):
        return data[:0], np.zeros(1, dtype=np.int64)
    ends = np.frombuffer(items.buffers()[1], dtype=np.int64)[items.offset : items.offset + len(items) + 1]
    return data, ends


def _binaries(data: Bytes, ends: Int64s) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def _ends(sizes: Int64s) -> Int64s:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _zeros(count: int) -> Int64s:
    return np.zeros(count, dtype=np.int64)
