"""Terms of a query, as the documents' own analysis finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.index.inverted.analysis.filters import filters_of
from pennon.index.inverted.analysis.params import JSON, TEXT, TextParams
from pennon.index.inverted.analysis.tokenizers import Tokenizer, texts_of

# Fuzzy queries are compared with the terms of an index as they are written, for all parameters.
FUZZY_PARAMS = TextParams(
    max_token_length=None, lower_case=False, stem=False, remove_stop_words=False, ascii_folding=False
)


# Up to this many tokens are filtered one by one.
_FEW_TOKENS = 64
_JSON_TYPES = ("str", "number", "bool", "null")


@dataclass(frozen=True)
class QueryTerm:
    """A term, and the place of its token in the text; what was left out takes a place too."""

    text: str
    position: int


def analyze(params: TextParams, text: str) -> list[QueryTerm]:
    """The terms of a text in their order, repeated ones included."""
    return analyze_all(params, [text])[0]


def analyze_all(params: TextParams, texts: Sequence[str]) -> list[list[QueryTerm]]:
    """The terms of each text. `InvalidArgument` where a query of JSON documents is not made of paths, types and
    values."""
    if params.lance_tokenizer == JSON:
        return [_analyze_paths(replace(params, lance_tokenizer=TEXT), text) for text in texts]
    tokenizer = Tokenizer(params)
    tokens = tokenizer.encode(texts_of(pa.array(texts, pa.large_string())))
    distinct, filters = tokenizer.strings(), filters_of(params)
    terms: list[str | None]
    if len(distinct) <= _FEW_TOKENS:
        terms = filters.apply_to_few(distinct.to_pylist())
    else:
        terms = filters.apply(distinct).to_pylist()
    places = params.base_tokenizer != "ngram"
    analyzed: list[list[QueryTerm]] = []
    for first, last in zip(tokens.documents[:-1].tolist(), tokens.documents[1:].tolist(), strict=True):
        numbered = enumerate(tokens.numbers[first:last].tolist())
        found = [(place if places else 0, terms[number]) for place, number in numbered]
        analyzed.append([QueryTerm(term, place) for place, term in found if term is not None])
    return analyzed


def _analyze_paths(params: TextParams, text: str) -> list[QueryTerm]:
    """The terms of `path,type,value`, of which several have semicolons between them; only strings have words."""
    found: list[str] = []
    for part in text.split(";"):
        path, type_, value = part.split(",", 2) if part.count(",") >= 2 else (part, "", "")
        if type_ not in _JSON_TYPES:
            raise InvalidArgument(
                f"{part!r} is not a query for a JSON column",
                "Use path,type,value, such as address.city,str,rome; types are str, number, bool and null",
            )
        values = [term.text for term in analyze(params, value)] if type_ == "str" else [value]
        found += [f"{path},{type_},{value}" for value in values]
    return [QueryTerm(term, place) for place, term in enumerate(found)]
