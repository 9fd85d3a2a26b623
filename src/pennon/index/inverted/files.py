"""The files of a segment: `metadata.lance`, and for each partition its documents, its dictionary and its postings.

A partition is an index of its own over some of the documents; `part_<number>_invert.lance` has a row for each term, and
the dictionary has the number of that row. `metadata.lance` has the parameters and the list of partitions. Fragments
whose documents are dead, although the files still have them, are in its `deleted_fragments`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import read_bitmap
from pennon.format.index_metadata import NOTHING, IndexFile
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.segment_contents import check_is_own
from pennon.format.store import Store
from pennon.index.arrays import Int64s
from pennon.index.inverted.analysis.params import BLOCK_SIZE, FORMAT_VERSION, TextParams
from pennon.index.inverted.checksums import Checksums, ListDigests
from pennon.index.inverted.dictionary.dictionary import Dictionary, Terms, encode_dictionary
from pennon.index.inverted.docs import SCHEMA, TOTAL_TOKENS, Docs
from pennon.index.inverted.postings.lists import IMPACTS, LENGTH, POSTING, REMEDY, EncodedLists, invert_schema

METADATA_FILE = "metadata.lance"
STORAGE_VERSION = "2.2"
_DELETED = pa.schema([pa.field("deleted_fragments", pa.binary(), nullable=False)])
_TOKENS = pa.schema(
    [
        pa.field("_token_fst_bytes", pa.large_binary(), nullable=False),
        pa.field("_token_next_id", pa.uint32(), nullable=False),
        pa.field("_token_total_length", pa.uint64(), nullable=False),
    ]
)
_FORMAT = {
    "format_version": str(FORMAT_VERSION),
    "posting_block_size": str(BLOCK_SIZE),
    "posting_tail_codec": "varint_delta_v1",
}
_POSITION_FORMAT = {"positions_layout": "shared_stream_v2", "positions_codec": "packed_delta_v1"}
# Version 3 of the format has the same bytes where blocks are of 128 postings.
_FORMAT_VERSIONS = ("2", "3")
_MOST_PARTITIONS = 1 << 20
_CHECKSUM = "pennon:checksum"


@dataclass(frozen=True)
class SegmentMetadata:
    """What `metadata.lance` holds."""

    params: TextParams
    partitions: tuple[int, ...]
    deleted_fragments: FrozenBitMap = NOTHING


def write_metadata(store: Store, directory: str, metadata: SegmentMetadata) -> IndexFile:
    """Write the file that makes partitions a segment."""
    keys = {
        "params": metadata.params.to_json(),
        "partitions": json.dumps(list(metadata.partitions)),
        "token_set_format": "fst",
        _CHECKSUM: _checksum(metadata),
        **_format(metadata.params.with_position),
    }
    content = BitMap(metadata.deleted_fragments).serialize()
    batch = pa.record_batch([pa.array([content], pa.binary())], schema=_DELETED)
    return write_lance_file(store, directory, METADATA_FILE, _DELETED, [batch], STORAGE_VERSION, keys)


def read_metadata(store: Store, directory: str, sizes: Mapping[str, int]) -> SegmentMetadata:
    """Read it; `DamagedFile` where it is none, `InvalidArgument` where Pennon cannot reproduce its analysis."""
    file = LanceFile(store, f"{directory}/{METADATA_FILE}", sizes.get(METADATA_FILE))
    where, keys = file.where, file.metadata
    try:
        partitions: list[object] = json.loads(keys["partitions"])
        numbers = tuple(number for number in partitions if isinstance(number, int) and 0 <= number < 1 << 64)
        if len(numbers) != len(partitions) or len(set(numbers)) != len(numbers) or len(numbers) > _MOST_PARTITIONS:
            raise ValueError("no list of distinct partitions")
        params = keys["params"]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"the metadata of {where} cannot be read: {error}", REMEDY) from error
    if keys.get("token_set_format") != "fst" or keys.get("format_version", "2") not in _FORMAT_VERSIONS:
        raise DamagedFile(f"{where} is of a form that Pennon does not read", REMEDY)
    metadata = SegmentMetadata(TextParams.from_json(params, where), numbers, _deleted(file))
    if keys.get(_CHECKSUM, _checksum(metadata)) != _checksum(metadata):
        raise DamagedFile(f"{where} is not as it was written", REMEDY)
    for number in numbers:
        check_is_own(sizes, sizes.get(_name(number, "docs")), where)
    return metadata


def _checksum(metadata: SegmentMetadata) -> str:
    """Of all that the file holds; pylance writes a file without it."""
    held = [metadata.params.to_json(), json.dumps(list(metadata.partitions))]
    return str(zlib.crc32("\n".join([*held, *map(str, metadata.deleted_fragments)]).encode()))


def _deleted(file: LanceFile) -> FrozenBitMap:
    if "deleted_fragments" not in file.schema.names or file.num_rows == 0:
        return FrozenBitMap()
    content = file.read(0, 1).column("deleted_fragments")[0].as_py()
    try:
        return FrozenBitMap(read_bitmap(content)) if content else FrozenBitMap()
    except (ValueError, TypeError) as error:
        raise DamagedFile(f"the deleted fragments of {file.where} cannot be read: {error}", REMEDY) from error


def write_partition(
    store: Store,
    directory: str,
    partition: int,
    batches: Iterable[pa.RecordBatch],
    terms: Callable[[], Terms],
    docs: Docs,
    with_positions: bool,
) -> list[IndexFile]:
    """Write a partition: posting lists, their terms, which are asked for once all lists are written, and documents."""
    digests, schema = ListDigests(), invert_schema(with_positions)
    name, keys = _name(partition, "invert"), _format(with_positions)
    lists = write_lance_file(store, directory, name, schema, digests.over(batches), STORAGE_VERSION, keys)
    return [
        lists,
        _write_terms(store, directory, partition, terms()),
        _write_docs(store, directory, partition, docs),
        digests.with_docs(docs).write(store, directory, checksums_name(partition)),
    ]


def copy_partition(files: PartitionFiles, docs: Docs, store: Store, directory: str, partition: int) -> list[IndexFile]:
    """Write a partition that differs from another one only in its documents, under its own number."""
    written = [_write_docs(store, directory, partition, docs)]
    for kind in ("tokens", "invert"):
        name = _name(partition, kind)
        written.append(IndexFile(name, store.copy(files.path(kind), f"{directory}/{name}")))
    checksums = files.read_checksums()
    if checksums is not None:
        written.append(checksums.of_other(docs).write(store, directory, checksums_name(partition)))
    return written


def _write_docs(store: Store, directory: str, partition: int, docs: Docs) -> IndexFile:
    keys = {TOTAL_TOKENS: str(docs.statistics.total_tokens)}
    name = _name(partition, "docs")
    return write_lance_file(store, directory, name, SCHEMA, [docs.to_batch()], STORAGE_VERSION, keys)


def _write_terms(store: Store, directory: str, partition: int, terms: Terms) -> IndexFile:
    """The dictionary of a partition, whose posting lists have the order of the terms."""
    content = encode_dictionary(terms, np.arange(len(terms), dtype=np.int64))
    columns = [
        pa.array([content.tobytes()], pa.large_binary()),
        pa.array([len(terms)], pa.uint32()),
        pa.array([int(terms.ends[-1])], pa.uint64()),
    ]
    batch = pa.record_batch(columns, schema=_TOKENS)
    return write_lance_file(store, directory, _name(partition, "tokens"), _TOKENS, [batch], STORAGE_VERSION)


def checksums_name(partition: int) -> str:
    """The file of checksums that Pennon writes next to a partition."""
    return f"part_{partition}_checksums.bin"


class PartitionFiles:
    """The files of a partition, opened as they are needed."""

    def __init__(self, store: Store, directory: str, partition: int, sizes: Mapping[str, int]) -> None:
        self.partition = partition
        self._store, self._directory, self._sizes = store, directory, sizes
        self._opened: dict[tuple[str, ...], LanceFile] = {}
        self._checksums: Checksums | None = None

    @property
    def where(self) -> str:
        """The partition, for messages."""
        return self._store.describe(f"{self._directory}/{_name(self.partition, '*')}")

    @property
    def names(self) -> list[str]:
        """Names of its files, without that of checksums."""
        return [_name(self.partition, kind) for kind in ("tokens", "docs", "invert")]

    def path(self, kind: str) -> str:
        """Where a file of it is."""
        return f"{self._directory}/{_name(self.partition, kind)}"

    @property
    def num_docs(self) -> int:
        """Documents, dead ones included."""
        return self._open("docs").num_rows

    def read_docs(self) -> Docs:
        """All documents."""
        file = self._open("docs")
        docs, checksums = Docs.of(file.read(), file.metadata.get(TOTAL_TOKENS), file.where), self.read_checksums()
        if checksums is not None:
            checksums.check_docs(docs, file.where)
        return docs

    def read_checksums(self) -> Checksums | None:
        """None where it was written without them."""
        name = checksums_name(self.partition)
        if name not in self._sizes:
            return None
        if self._checksums is None:
            self._checksums = Checksums.read(self._store, self._directory, name, self.num_terms)
        return self._checksums

    def read_dictionary_bytes(self) -> tuple[bytes, int]:
        """The encoded dictionary, and the bytes that its terms have together."""
        file = self._open("tokens")
        if file.schema != _TOKENS or file.num_rows != 1:
            raise DamagedFile(f"{file.where} does not hold a dictionary", REMEDY)
        content, count, total = (column[0].as_py() for column in file.read().columns)
        if count != self.num_terms:
            raise DamagedFile(f"{file.where} has {count} terms, its partition {self.num_terms}", REMEDY)
        return content, total

    def read_dictionary(self) -> tuple[Dictionary, int]:
        """The dictionary, and the bytes that its terms have together."""
        content, total = self.read_dictionary_bytes()
        dictionary = Dictionary(np.frombuffer(content, dtype=np.uint8), self.where)
        if dictionary.count != self.num_terms:
            raise DamagedFile(f"the dictionary of {self.where} has {dictionary.count} terms", REMEDY)
        return dictionary, total

    @property
    def num_terms(self) -> int:
        return self._invert(LENGTH).num_rows

    def read_sizes(self) -> Int64s:
        """The number of postings of each term, in the order of the file."""
        return self._invert(LENGTH).read().column(0).to_numpy().astype(np.int64)

    def read_lists(self, first: int, count: int, with_positions: bool) -> EncodedLists:
        """The posting lists of `count` terms from the first on, in the order of the file."""
        file = self._invert() if with_positions else self._invert(POSTING, LENGTH, IMPACTS)
        lists, checksums = EncodedLists.of(file.read(first, count), file.where), self.read_checksums()
        if checksums is not None:
            checksums.check_lists(first, lists)
        return lists

    def read_each(self, first: int, count: int, with_positions: bool) -> Iterator[EncodedLists]:
        """The same, each with memory of its own."""
        file = self._invert() if with_positions else self._invert(POSTING, LENGTH, IMPACTS)
        table, checksums = file.read(first, count), self.read_checksums()
        for number in range(count):
            lists = EncodedLists.of(table.take([number]), file.where)
            if checksums is not None:
                checksums.check_lists(first + number, lists)
            yield lists

    def read_table(self, with_positions: bool) -> tuple[pa.Table, str]:
        """The rows of all posting lists, and where they are from."""
        file = self._invert() if with_positions else self._invert(POSTING, LENGTH, IMPACTS)
        return file.read(), file.where

    def _invert(self, *columns: str) -> LanceFile:
        file = self._open("invert", *columns)
        recorded = {key: file.metadata.get(key) for key in _FORMAT}
        if recorded.pop("format_version") not in _FORMAT_VERSIONS or any(_FORMAT[k] != v for k, v in recorded.items()):
            raise DamagedFile(f"{file.where} is of a form that Pennon does not read", REMEDY)
        return file

    def _open(self, kind: str, *columns: str) -> LanceFile:
        key = (kind, *columns)
        if key not in self._opened:
            path, size = self.path(kind), self._sizes.get(_name(self.partition, kind))
            self._opened[key] = LanceFile(self._store, path, size, list(columns) or None)
        return self._opened[key]


def _format(with_positions: bool) -> dict[str, str]:
    return {**_FORMAT, **(_POSITION_FORMAT if with_positions else {})}


def _name(partition: int, kind: str) -> str:
    return f"part_{partition}_{kind}.lance"
