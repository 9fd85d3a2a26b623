"""Which tokenizer reads the documents of a column."""

from __future__ import annotations

import pyarrow as pa

from pennon.index.inverted.analysis.json_documents import JsonTokenizer
from pennon.index.inverted.analysis.params import JSON, TEXT, TextParams
from pennon.index.inverted.analysis.tokenizers import Tokenizer, supports_text

# What the position of a term is, in kernels: 0 for all, the place of its token, or the number of terms before it.
NOWHERE, BY_PLACE, BY_TERM = 0, 1, 2


def supports_type(type_: pa.DataType) -> bool:
    """Whether documents can be read from a column of the type."""
    return _is_json(type_) or supports_text(type_)


def document_kind(type_: pa.DataType) -> str:
    """How pylance calls the documents of a column of a supported type."""
    return JSON if _is_json(type_) else TEXT


def tokenizer_of(params: TextParams) -> Tokenizer | JsonTokenizer:
    """A new tokenizer for documents."""
    return JsonTokenizer(params) if params.lance_tokenizer == JSON else Tokenizer(params)


def position_rule(params: TextParams) -> int:
    """What the position of a term is."""
    if params.lance_tokenizer == JSON:
        return BY_TERM
    return NOWHERE if params.base_tokenizer == "ngram" else BY_PLACE


def _is_json(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.JsonType)
