"""The audit of an n-gram index: compares every token of every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.ngram.files import PostingsFile
from pennon.index.ngram.postings import DamagedPostings
from pennon.index.ngram.tokens import token_sets
from pennon.jobs.audit.checksums import Facts, facts_of_hashes, mixed
from pennon.jobs.audit.targets import Piece, Subject, View, answered_by
from pennon.jobs.kinds import ExactAudit
from pennon.jobs.ngram.merge import MOST_IDS

# The weight of a posting list when a segment is cut into pieces of work.
ROWS_PER_TOKEN = 1000


@dataclass(frozen=True)
class NGramAudit(ExactAudit):
    scalar: bool = True

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        tokens = PostingsFile(pin.open().store, subject.segment).read_tokens()
        rows = pin.open().manifest.rows_in(pin.open().manifest.live & subject.fragments)
        weight = max(ROWS_PER_TOKEN, rows // max(1, len(tokens)))
        return np.full(len(tokens), weight), View(subject.column, read_tokens, several=True)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        answered, file = answered_by(pin, piece.subject), PostingsFile(pin.open().store, piece.subject.segment)
        for postings in file.postings(piece.start, piece.stop):
            try:
                for part in postings.cut(MOST_IDS):
                    tokens, ids = part.ids()
                    addresses, kept = answered.locate(ids)
                    yield addresses[kept], _facts(addresses[kept], tokens[kept])
            except DamagedPostings:
                raise file.damaged() from None


def read_tokens(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """Every token of every text."""
    snapshot = pin.open()
    for texts, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        tokens, ends = token_sets(texts)
        owners = np.repeat(addresses, np.diff(ends, prepend=0))
        yield owners, _facts(owners, tokens)


def _facts(addresses: Addresses, tokens: npt.NDArray[np.uint32]) -> Facts:
    return facts_of_hashes(addresses, mixed(tokens.astype(np.uint64)))
