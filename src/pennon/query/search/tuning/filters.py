"""The class of a filter: what remains of it without its literals, and the share of rows that it selects."""

from __future__ import annotations

import re

from pennon.query.catalog import Catalog
from pennon.query.filter.tokens import Broken, NotUnderstood, Tokens
from pennon.query.scan.execute import count
from pennon.query.search.request import SearchRequest
from pennon.query.search.tuning.record import FilterClass

# Classes that a handle remembers; filters may differ from search to search.
REMEMBERED = 256
_LITERALS = ("number", "string", "binary")
_LISTS = re.compile(r"\?( , \?)+")
_WORDS = ("true", "false")


def filter_class(catalog: Catalog, request: SearchRequest) -> FilterClass | None:
    """None where all rows may be answers."""
    filter = request.filter
    if filter is None or not request.prefilter:
        return None
    memory, key = catalog.memory, ("filter class", filter)
    if key not in memory:
        if sum(isinstance(each, tuple) and each[0] == "filter class" for each in memory) >= REMEMBERED:
            return _class_of(catalog, filter)
        memory[key] = _class_of(catalog, filter)
    return memory[key]


def shape_of(filter: str) -> str:
    """The filter with a question mark for each literal, and for each list of them. What only Lance parses is its own
    shape."""
    words: list[str] = []
    try:
        tokens = Tokens(filter)
        while tokens.kind != "end":
            literal = tokens.kind in _LITERALS or tokens.text.lower() in _WORDS
            words.append("?" if literal else tokens.text.lower() if tokens.kind == "word" else tokens.text)
            tokens.advance()
    except (NotUnderstood, Broken):
        return " ".join(filter.split())
    return _LISTS.sub("?", " ".join(words)).replace("- ?", "?")


def _class_of(catalog: Catalog, filter: str) -> FilterClass:
    manifest = catalog.snapshot.manifest
    return FilterClass(shape_of(filter), count(catalog, filter) / max(1, manifest.rows_in(manifest.live)))
