"""The documents of an inverted index, as an audit compares them: every live row with a term, its number of tokens, the
terms themselves and where they are.

Posting lists are compared with their documents as well, and impacts with the scores that they bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.arrays import UInt32s, UInt64s
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.audit import TableDocuments, sum_partition
from pennon.index.inverted.docs import in_fragments
from pennon.index.inverted.files import PartitionFiles, SegmentMetadata
from pennon.index.inverted.kind import INVERTED
from pennon.jobs.audit.checksums import Facts, Sums, facts_of_hashes, mixed
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, View, answered_by


@dataclass(frozen=True)
class InvertedAudit:
    scalar: bool = True
    repeating: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        metadata, partitions = _opened(pin, subject)
        rows = np.array([files.num_docs for files in partitions], dtype=np.int64)
        return rows, View(subject.column, read_documents, metadata.params)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        metadata, partitions = _opened(pin, piece.subject)
        for files in partitions[piece.start : piece.stop]:
            yield _rows(pin, piece.subject, metadata, files)

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        sums = Sums.over(piece.subject.fragments)
        metadata, partitions = _opened(pin, piece.subject)
        for files in partitions[piece.start : piece.stop]:
            sums.add(*_rows(pin, piece.subject, metadata, files))
        return sums.filled(), CodeTally()

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> None:
        return None


def read_documents(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """Every row of the column that has a term."""
    snapshot = pin.open()
    table = TableDocuments(cast(TextParams, view.detail))
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        found = table.sum_up(values)
        held = found.lengths > 0
        yield addresses[held], _facts(addresses[held], found.lengths[held], found.sums[held])


def _opened(pin: Pin, subject: Subject) -> tuple[SegmentMetadata, list[PartitionFiles]]:
    snapshot, segment = pin.open(), subject.segment
    metadata = INVERTED.metadata_of(snapshot, segment)
    sizes = segment.file_sizes
    return metadata, [PartitionFiles(snapshot.store, segment.directory, n, sizes) for n in metadata.partitions]


def _rows(pin: Pin, subject: Subject, metadata: SegmentMetadata, files: PartitionFiles) -> tuple[Addresses, Facts]:
    """Documents that queries would find, under current addresses. DamagedFile where posting lists are wrong."""
    docs = files.read_docs()
    found = sum_partition(files, docs, metadata.params.with_position)
    addresses, kept = answered_by(pin, subject).locate(docs.row_ids)
    if metadata.deleted_fragments:
        kept = kept & ~in_fragments(docs.row_ids, metadata.deleted_fragments)
    return addresses[kept], _facts(addresses[kept], found.lengths[kept], found.sums[kept])


def _facts(addresses: Addresses, lengths: UInt32s, sums: UInt64s) -> Facts:
    return facts_of_hashes(addresses, mixed(lengths.astype(np.uint64)) + sums)
