"""Terms of a query, as the documents' own analysis finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.tokenizers import Tokenizer, texts_of

# Fuzzy queries are compared with the terms of an index as they are written, whatever its parameters.
FUZZY_PARAMS = TextParams(
    max_token_length=None, lower_case=False, stem=False, remove_stop_words=False, ascii_folding=False
)


@dataclass(frozen=True)
class QueryTerm:
    """A term, and the place of its token in the text; what was left out takes a place too."""

    text: str
    position: int


def analyze(params: TextParams, text: str) -> list[QueryTerm]:
    """The terms of a text in their order, repeated ones included."""
    return analyze_all(params, [text])[0]


def analyze_all(params: TextParams, texts: Sequence[str]) -> list[list[QueryTerm]]:
    """The terms of each text."""
    tokenizer = Tokenizer(params)
    tokens = tokenizer.encode(texts_of(pa.array(texts, pa.large_string())))
    terms: list[str | None] = Filters(params).apply(tokenizer.strings()).to_pylist()
    places = params.base_tokenizer != "ngram"
    analyzed: list[list[QueryTerm]] = []
    for first, last in zip(tokens.documents[:-1].tolist(), tokens.documents[1:].tolist(), strict=True):
        numbered = enumerate(tokens.numbers[first:last].tolist())
        found = [(place if places else 0, terms[number]) for place, number in numbered]
        analyzed.append([QueryTerm(term, place) for place, term in found if term is not None])
    return analyzed
