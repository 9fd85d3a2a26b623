"""The file of an n-gram segment: the posting list of every token.

`ngram_postings.lance` has a row a token, ascending: `tokens` (uint32) and `posting_list` (binary), a 64-bit roaring
treemap of ids (`bitmap_kernels`). Token 0 has the rows whose text is NULL. Readers assume that no row has a token that
is missing from the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import BuildFailed, DamagedFile
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.store import Store
from pennon.index.ngram.checksums import ChecksumWriter, read_checksums
from pennon.index.ngram.folding import TOKEN_LIMIT
from pennon.index.ngram.postings import DamagedPostings, Postings, join_postings

POSTINGS_FILE = "ngram_postings.lance"
SCHEMA = pa.schema(
    [
        pa.field("tokens", pa.uint32()),
        pa.field("posting_list", pa.binary(), nullable=False, metadata={"lance-encoding:compression": "none"}),
    ]
)
REMEDY = "Rebuild the index"
# Posting lists read at once by jobs. One of a billion rows may take 100 MiB.
READ_ROWS = 64


class PostingsFile:
    """An open file of posting lists. Reads are verified by the segment's checksums, if it has them."""

    def __init__(self, store: Store, segment: IndexSegment) -> None:
        path, size = f"{segment.directory}/{POSTINGS_FILE}", segment.file_sizes.get(POSTINGS_FILE)
        self._file = LanceFile(store, path, size)
        self.where = self._file.where
        if [(field.name, field.type) for field in self._file.schema] != [(f.name, f.type) for f in SCHEMA]:
            raise DamagedFile(f"{self.where} does not hold tokens and posting lists", REMEDY)
        self._tokens_only = LanceFile(store, path, size, columns=["tokens"])
        self._checksums = read_checksums(store, segment)

    def read_tokens(self) -> npt.NDArray[np.uint32]:
        """All tokens, ascending."""
        column = self._tokens_only.read().column(0).combine_chunks()
        tokens = column.to_numpy() if not column.null_count else None
        if tokens is None or (tokens[1:] <= tokens[:-1]).any() or (len(tokens) and tokens[-1] >= TOKEN_LIMIT):
            raise DamagedFile(f"the tokens in {self.where} are not in order", REMEDY)
        if self._checksums is not None:
            self._checksums.check_tokens(tokens, self.where)
        return tokens

    def read_lists(self, rows: list[int]) -> list[bytes]:
        """The posting lists in some rows, ascending."""
        found = self._file.take(rows).column(1).combine_chunks()
        self._check(rows, found)
        return found.to_pylist()

    def lists(self) -> Iterator[list[bytes]]:
        """All posting lists, a few at a time."""
        for _, found in self._batches(0, self._file.num_rows):
            yield found.to_pylist()

    def postings(self, start: int, stop: int) -> Iterator[Postings]:
        """A range of rows as pieces, a few rows at a time."""
        for tokens, found in self._batches(start, stop):
            if tokens.null_count:
                raise DamagedFile(f"{self.where} has posting lists without a token", REMEDY)
            try:
                yield Postings.of_lists(tokens.to_numpy(), found)
            except DamagedPostings:
                raise self.damaged() from None

    def damaged(self) -> DamagedFile:
        """The error for a posting list that cannot be decoded."""
        return DamagedFile(f"a posting list in {self.where} is damaged", REMEDY)

    def _batches(self, start: int, stop: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        row = start
        for batch in self._file.batches(start, stop - start, READ_ROWS):
            self._check(range(row, row + batch.num_rows), batch.column(1))
            row += batch.num_rows
            yield batch.column(0), batch.column(1)

    def _check(self, rows: Sequence[int], lists: pa.Array) -> None:
        if lists.null_count:
            raise DamagedFile(f"{self.where} has tokens without a posting list", REMEDY)
        if self._checksums is not None:
            self._checksums.check_lists(rows, lists, self.where)


def write_postings(
    store: Store, directory: str, name: str, parts: Iterable[Postings], storage_version: str
) -> IndexFile:
    """Write one file of all pieces, with those of one token and high half joined. All are in memory at once."""
    return write_lance_file(store, directory, name, SCHEMA, joined_lists(parts), storage_version)


def write_segment(
    store: Store, directory: str, batches: Iterable[pa.RecordBatch], storage_version: str
) -> tuple[IndexFile, ...]:
    """Write the files of a segment from posting lists in the order of their tokens."""
    checksums = ChecksumWriter()
    file = write_lance_file(store, directory, POSTINGS_FILE, SCHEMA, checksums.over(batches), storage_version)
    return file, checksums.write(store, directory)


def joined_lists(parts: Iterable[Postings]) -> Iterator[pa.RecordBatch]:
    """Sorted tokens and posting lists, in the format of files."""
    try:
        for tokens, lists in join_postings(list(parts)):
            yield pa.record_batch([pa.array(tokens), lists], schema=SCHEMA)
    except DamagedPostings:
        raise BuildFailed("posting lists were damaged during the exchange between tasks", "Try again") from None
    except OverflowError as error:
        raise BuildFailed(str(error), "Build the index in several segments, by fragment_ids") from None
