"""What becomes of tokens: too long, lower case, stem, stop word, ASCII; in this order, as pylance has it.

Stop words are compared with stems, and folding comes last. Every distinct token is filtered once, so that the cost
follows the vocabulary and not the text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

from pennon.index.inverted.analysis import tables
from pennon.index.inverted.analysis.params import TextParams

# Between tokens that are translated in one go; half of a surrogate pair is in no decoded text.
_BETWEEN = "\ud800"


class Filters:
    """The filters of some parameters."""

    def __init__(self, params: TextParams) -> None:
        self._longest = params.max_token_length
        self._lower = tables.lower() if params.lower_case else None
        self._stemmer = Stemmer.Stemmer(params.language.lower()) if params.stem else None
        self._folding = tables.folding() if params.ascii_folding else None
        self._stop_words: pa.Array | None = None
        if params.remove_stop_words:
            chosen = params.custom_stop_words
            words = tables.stop_words(params.language) if chosen is None else frozenset(chosen)
            self._stop_words = pa.array(sorted(words), pa.large_string())

    def apply(self, tokens: pa.Array) -> pa.Array:
        """The term of each token, a large string each; NULL where it is left out."""
        if self._longest is not None:
            # In bytes, and before anything else.
            short = pc.less(pc.binary_length(tokens), self._longest)
            tokens = pc.if_else(short, tokens, pa.scalar(None, tokens.type))
        lowered = self._lowered(_decoded(tokens)).dictionary_encode()
        words: list[str] = lowered.dictionary.to_pylist()
        stems = pa.array(self._stemmer.stemWords(words) if self._stemmer is not None else words, pa.large_string())
        terms = self._folded(stems)
        if self._stop_words is not None:
            terms = pc.if_else(pc.is_in(stems, self._stop_words), pa.scalar(None, terms.type), terms)
        return terms.take(lowered.indices)

    def _lowered(self, tokens: pa.Array) -> pa.Array:
        if self._lower is None:
            return tokens
        return _changed(pc.ascii_lower(tokens), self._lower)

    def _folded(self, stems: pa.Array) -> pa.Array:
        return stems if self._folding is None else _changed(stems, self._folding)


def _decoded(tokens: pa.Array) -> pa.Array:
    """Large strings; what is no UTF-8, which a damaged data file may hold, has replacement characters."""
    try:
        return tokens.cast(pa.large_string())
    except pa.ArrowInvalid:
        found = [None if token is None else token.decode("utf-8", "replace") for token in tokens.to_pylist()]
        return pa.array(found, pa.large_string())


def _changed(words: pa.Array, table: dict[int, str]) -> pa.Array:
    """Words with their characters replaced; only those beyond ASCII have some to replace."""
    other = pc.indices_nonzero(pc.invert(pc.fill_null(pc.string_is_ascii(words), True)))
    if not len(other):
        return words
    found: list[str] = words.take(other).to_pylist()
    replaced = pa.array(_BETWEEN.join(found).translate(table).split(_BETWEEN), pa.large_string())
    mask = np.zeros(len(words), dtype=np.bool_)
    mask[other.to_numpy()] = True
    return pc.replace_with_mask(words, pa.array(mask), replaced)
