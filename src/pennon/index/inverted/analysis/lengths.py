"""How many tokens documents have after all filters, without their being kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pennon.index.arrays import Flags, UInt32s
from pennon.index.inverted.analysis.documents import tokenizer_of
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams

# Beyond it the table of distinct tokens is started again.
MOST_BYTES = 64 << 20


class TokenCounter:
    """Counts the tokens of one batch of documents after another; every distinct token is filtered once."""

    def __init__(self, params: TextParams) -> None:
        self._params, self._filters = params, Filters(params)
        self._start_again()

    def count(self, column: pa.Array) -> UInt32s:
        """Of each row; 0 for rows that an index has no document of."""
        if self._tokenizer.nbytes > MOST_BYTES:
            self._start_again()
        tokens = self._tokenizer.encode_column(column)
        known = len(self._kept)
        if self._tokenizer.uniques > known:
            terms = self._tokenizer.terms(self._filters, known)
            self._kept = np.concatenate([self._kept, terms.is_valid().to_numpy(zero_copy_only=False)])
        reached = np.zeros(len(tokens.numbers) + 1, dtype=np.int64)
        np.cumsum(self._kept[tokens.numbers], out=reached[1:])
        return np.diff(reached[tokens.documents]).astype(np.uint32)

    def _start_again(self) -> None:
        self._tokenizer = tokenizer_of(self._params)
        self._kept: Flags = np.empty(0, dtype=np.bool_)
