"""Documents as an audit compares them: the number of their tokens, and a sum over their terms and positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.index.arrays import Flags, UInt32s, UInt64s
from pennon.index.inverted.analysis.documents import NOWHERE, position_rule, tokenizer_of
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.token_table import MOST_BYTES
from pennon.index.inverted.audit_kernels import hash_terms, sum_documents, sum_postings
from pennon.index.inverted.build import cut_terms
from pennon.index.inverted.dictionary.dictionary import Terms
from pennon.index.inverted.docs import REMEDY, Docs
from pennon.index.inverted.files import PartitionFiles
from pennon.index.inverted.postings.bound_kernels import bounds_hold
from pennon.index.inverted.postings.lists import EncodedLists, PostingLists

_NO_POSITIONS = np.empty(0, dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class DocumentSums:
    """Of documents that follow one another."""

    lengths: UInt32s
    sums: UInt64s


class TableDocuments:
    """Sums of one batch of rows after another; every distinct token is filtered once."""

    def __init__(self, params: TextParams) -> None:
        self._params, self._filters = params, Filters(params)
        self._rule = position_rule(params) if params.with_position else NOWHERE
        self._start_again()

    def sum_up(self, column: pa.Array) -> DocumentSums:
        """Of each row; a length of 0 for rows that an index has no document of."""
        if self._tokenizer.nbytes > MOST_BYTES:
            self._start_again()
        tokens = self._tokenizer.encode_column(column)
        known = len(self._kept)
        if self._tokenizer.uniques > known:
            terms = self._tokenizer.terms(self._filters, known)
            self._kept = np.concatenate([self._kept, terms.is_valid().to_numpy(zero_copy_only=False)])
            self._hashes = np.concatenate([self._hashes, _hashes(Terms.of(terms.fill_null("")))])
        lengths, sums = np.empty(len(column), dtype=np.uint32), np.empty(len(column), dtype=np.uint64)
        sum_documents(tokens.numbers, tokens.documents, self._hashes, self._kept, self._rule, lengths, sums)
        return DocumentSums(lengths, sums)

    def _start_again(self) -> None:
        self._tokenizer = tokenizer_of(self._params)
        self._kept: Flags = np.empty(0, dtype=np.bool_)
        self._hashes: UInt64s = np.empty(0, dtype=np.uint64)


def sum_partition(files: PartitionFiles, docs: Docs, with_positions: bool) -> DocumentSums:
    """Of the documents of a partition by its posting lists. DamagedFile where these cannot be read, do not hold the
    tokens of the documents, or have impacts below the scores that they bound."""
    dictionary, total = files.read_dictionary()
    terms, rows = dictionary.list_all(total)
    hashes = np.empty(len(terms), dtype=np.uint64)
    hashes[rows] = _hashes(terms)
    lengths, sums = np.zeros(len(docs), dtype=np.uint32), np.zeros(len(docs), dtype=np.uint64)
    for first, last in cut_terms(files.read_sizes()):
        encoded = files.read_lists(first, last - first, with_positions)
        lists = encoded.decode(len(docs))
        positions = _NO_POSITIONS if lists.positions is None else lists.positions
        given = lists.ends, lists.docs, lists.freqs, positions, lists.positions is not None
        sum_postings(*given, hashes[first:last], lengths, sums)
        _check_bounds(files, encoded, lists, docs)
    wrong = int(np.count_nonzero(lengths != docs.lengths))
    if wrong:
        problem = f"the posting lists of {files.where} do not hold the tokens of {wrong:,} documents"
        raise DamagedFile(problem, REMEDY)
    return DocumentSums(lengths, sums)


def _check_bounds(files: PartitionFiles, encoded: EncodedLists, lists: PostingLists, docs: Docs) -> None:
    impacts = encoded.impact_terms, encoded.impact_data, encoded.impact_ends
    if not bounds_hold(lists.ends, lists.docs, lists.freqs, docs.lengths, *impacts, docs.statistics.average):
        raise DamagedFile(f"impacts of {files.where} are below the scores that they bound", REMEDY)


def _hashes(terms: Terms) -> UInt64s:
    hashes = np.empty(len(terms), dtype=np.uint64)
    hash_terms(terms.data, terms.ends, hashes)
    return hashes
