"""Which tokens the rows of a condition must have."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pennon.index.conditions import ColumnRanges, Condition, ContainsText
from pennon.index.key_spans import common_prefix, order_of
from pennon.index.ngram.tokens import tokens_of

# Of a very long text this many tokens are looked up. The filter is checked on the rows anyway.
MOST_TOKENS = 64
# Ranges of texts that are looked up one by one, at most.
MOST_RANGES = 32


def tokens_to_look_up(condition: Condition) -> tuple[npt.NDArray[np.uint32], ...] | None:
    """For every way to satisfy the condition the tokens, ascending, that its rows have.

    Texts that contain something have its tokens, and texts of a range those of what all of them start with.

    Returns:
        None where there is a way without tokens, so that the index does not narrow the rows down.
    """
    if isinstance(condition, ContainsText):
        ways = (condition.pieces,)
    elif isinstance(condition, ColumnRanges) and 0 < len(condition.spans) <= MOST_RANGES and not condition.nulls:
        order = order_of(condition.type)
        ways = tuple((common_prefix(order, span),) for span in condition.spans)
    else:
        return None
    found = tuple(map(_tokens, ways))
    return found if all(map(len, found)) else None


@lru_cache(maxsize=256)
def _tokens(pieces: tuple[str, ...]) -> npt.NDArray[np.uint32]:
    """Tokens that all rows have which contain the pieces."""
    tokens = np.array(sorted(tokens_of(pieces)), dtype=np.uint32)
    return tokens[np.linspace(0, len(tokens) - 1, min(len(tokens), MOST_TOKENS)).astype(np.int64)]
