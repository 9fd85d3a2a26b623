"""The documents of an inverted index, as an audit compares them: every live row with a term, and its number of tokens.

Posting lists are compared with the documents beside them: the frequencies of a document add up to its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pennon.engine import Engine
from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.arrays import UInt32s
from pennon.index.inverted.analysis.lengths import TokenCounter
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.build import cut_terms
from pennon.index.inverted.docs import Docs, in_fragments
from pennon.index.inverted.files import PartitionFiles, SegmentMetadata
from pennon.index.inverted.kind import INVERTED
from pennon.index.inverted.postings.lists import REMEDY
from pennon.jobs.audit.checksums import Facts, Sums, facts_of_hashes, mixed
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, View, answered_by


@dataclass(frozen=True)
class InvertedAudit:
    scalar: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        metadata, partitions = _opened(pin, subject)
        rows = np.array([files.num_docs for files in partitions], dtype=np.int64)
        return rows, View(subject.column, read_lengths, metadata.params)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        metadata, partitions = _opened(pin, piece.subject)
        for files in partitions[piece.start : piece.stop]:
            yield _rows(pin, piece.subject, metadata, files.read_docs())

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        sums = Sums.over(piece.subject.fragments)
        metadata, partitions = _opened(pin, piece.subject)
        for files in partitions[piece.start : piece.stop]:
            docs = files.read_docs()
            _check_postings(files, docs)
            sums.add(*_rows(pin, piece.subject, metadata, docs))
        return sums.filled(), CodeTally()

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> None:
        return None


def read_lengths(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """Every row of the column that has a term, and how many tokens."""
    snapshot = pin.open()
    counter = TokenCounter(cast(TextParams, view.detail))
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        lengths = counter.count(values)
        held = lengths > 0
        yield addresses[held], _facts(addresses[held], lengths[held])


def _opened(pin: Pin, subject: Subject) -> tuple[SegmentMetadata, list[PartitionFiles]]:
    snapshot, segment = pin.open(), subject.segment
    metadata = INVERTED.metadata_of(snapshot, segment)
    sizes = segment.file_sizes
    return metadata, [PartitionFiles(snapshot.store, segment.directory, n, sizes) for n in metadata.partitions]


def _rows(pin: Pin, subject: Subject, metadata: SegmentMetadata, docs: Docs) -> tuple[Addresses, Facts]:
    """Documents that queries would find, under today's addresses."""
    addresses, kept = answered_by(pin, subject).locate(docs.row_ids)
    if metadata.deleted_fragments:
        kept = kept & ~in_fragments(docs.row_ids, metadata.deleted_fragments)
    return addresses[kept], _facts(addresses[kept], docs.lengths[kept])


def _check_postings(files: PartitionFiles, docs: Docs) -> None:
    """DamagedFile where posting lists do not hold the tokens of their documents."""
    tokens = np.zeros(len(docs), dtype=np.int64)
    for first, last in cut_terms(files.read_sizes()):
        lists = files.read_lists(first, last - first, with_positions=False).decode(len(docs))
        tokens += np.bincount(lists.docs, lists.freqs, len(docs)).astype(np.int64)
    wrong = int(np.count_nonzero(tokens != docs.lengths))
    if wrong:
        problem = f"the posting lists of {files.where} do not hold the tokens of {wrong:,} documents"
        raise DamagedFile(problem, REMEDY)


def _facts(addresses: Addresses, lengths: UInt32s) -> Facts:
    return facts_of_hashes(addresses, mixed(lengths.astype(np.uint64)))
