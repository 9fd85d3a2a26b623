"""What becomes of tokens: too long, lower case, stem, stop word, ASCII; in this order, as pylance has it.

Stop words are compared with stems, and folding comes last. Every distinct token is filtered once, so that the cost
follows the vocabulary and not the text.
"""

from __future__ import annotations

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
        self._stop_words: frozenset[str] = frozenset()
        if params.remove_stop_words:
            chosen = params.custom_stop_words
            self._stop_words = tables.stop_words(params.language) if chosen is None else frozenset(chosen)

    def apply(self, tokens: pa.Array) -> pa.Array:
        """The term of each token, a large string each; NULL where it is left out."""
        if self._longest is not None:
            # In bytes, and before anything else.
            short = pc.less(pc.binary_length(tokens), self._longest)
            tokens = pc.if_else(short, tokens, pa.scalar(None, tokens.type))
        found = _decoded(tokens)
        kept = [place for place, token in enumerate(found) if token is not None]
        words = [token for token in found if token is not None]
        if self._lower is not None:
            words = _translated(words, self._lower)
        if self._stemmer is not None:
            words = self._stemmer.stemWords(words)
        terms: list[str | None] = list(words)
        if self._stop_words:
            terms = [None if word in self._stop_words else word for word in words]
        if self._folding is not None:
            other = [place for place, term in enumerate(terms) if term is not None and not term.isascii()]
            folded = _translated([words[place] for place in other], self._folding)
            for place, term in zip(other, folded, strict=True):
                terms[place] = term
        placed: list[str | None] = [None] * len(found)
        for place, term in zip(kept, terms, strict=True):
            placed[place] = term
        return pa.array(placed, pa.large_string())


def _decoded(tokens: pa.Array) -> list[str | None]:
    try:
        return tokens.cast(pa.large_string()).to_pylist()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        # Bytes that are no UTF-8, which a damaged data file may hold.
        return [None if token is None else token.decode("utf-8", "replace") for token in tokens.to_pylist()]


def _translated(words: list[str], table: dict[int, str]) -> list[str]:
    """Words with their characters replaced, in one pass over all of them."""
    return _BETWEEN.join(words).translate(table).split(_BETWEEN) if words else words
