"""What becomes of tokens: too long, lower case, stem, stop word, ASCII; in this order, as pylance has it.

Stop words are compared with stems, and folding comes last. Every distinct token is filtered once, so that the cost
follows the vocabulary and not the text. The few tokens of a query are filtered one by one: a call of Arrow takes as
long as ten of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import local

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

from pennon.index.inverted.analysis import tables
from pennon.index.inverted.analysis.params import TextParams

# Between tokens that are translated in one go; half of a surrogate pair is in no decoded text.
_BETWEEN = "\ud800"
_own = local()
_ASCII_LOWER = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


class Filters:
    """The filters of some parameters."""

    def __init__(self, params: TextParams) -> None:
        self._longest = params.max_token_length
        self._lower = tables.lower() if params.lower_case else None
        self._stemmer = Stemmer.Stemmer(params.language.lower()) if params.stem else None
        self._folding = tables.folding() if params.ascii_folding else None
        self._stop_words: frozenset[str] | None = None
        if params.remove_stop_words:
            chosen = params.custom_stop_words
            self._stop_words = tables.stop_words(params.language) if chosen is None else frozenset(chosen)
            self._stop_array = pa.array(sorted(self._stop_words), pa.large_string())

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
            terms = pc.if_else(pc.is_in(stems, self._stop_array), pa.scalar(None, terms.type), terms)
        return terms.take(lowered.indices)

    def apply_to_few(self, tokens: Sequence[bytes]) -> list[str | None]:
        """As `apply`, for a few tokens."""
        return [self._term(token) for token in tokens]

    def _term(self, token: bytes) -> str | None:
        if self._longest is not None and len(token) >= self._longest:
            return None
        word = token.decode("utf-8", "replace")
        if self._lower is not None:
            word = word.lower() if word.isascii() else word.translate(_ASCII_LOWER).translate(self._lower)
        stem: str = word if self._stemmer is None else self._stemmer.stemWord(word)
        if self._stop_words is not None and stem in self._stop_words:
            return None
        return stem if self._folding is None or stem.isascii() else stem.translate(self._folding)

    def _lowered(self, tokens: pa.Array) -> pa.Array:
        if self._lower is None:
            return tokens
        return _changed(pc.ascii_lower(tokens), self._lower)

    def _folded(self, stems: pa.Array) -> pa.Array:
        return stems if self._folding is None else _changed(stems, self._folding)


def filters_of(params: TextParams) -> Filters:
    """The filters of the calling thread: a stemmer serves one thread at a time."""
    if getattr(_own, "params", None) != params:
        _own.params, _own.filters = params, Filters(params)
    return _own.filters


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
