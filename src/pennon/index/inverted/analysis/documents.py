"""Which tokenizer reads the documents of a column."""

from __future__ import annotations

from pennon.index.inverted.analysis.json_documents import JsonTokenizer
from pennon.index.inverted.analysis.params import JSON, TextParams
from pennon.index.inverted.analysis.tokenizers import Tokenizer

# What the position of a term is, in kernels: 0 for all, the place of its token, or the number of terms before it.
NOWHERE, BY_PLACE, BY_TERM = 0, 1, 2


def tokenizer_of(params: TextParams) -> Tokenizer | JsonTokenizer:
    """A new tokenizer for documents."""
    return JsonTokenizer(params) if params.lance_tokenizer == JSON else Tokenizer(params)


def position_rule(params: TextParams) -> int:
    """What the position of a term is."""
    if params.lance_tokenizer == JSON:
        return BY_TERM
    return NOWHERE if params.base_tokenizer == "ngram" else BY_PLACE
