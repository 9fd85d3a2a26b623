"""The class of a filter: what remains of it without its literals, and the share of rows that it selects."""

from __future__ import annotations

import hashlib
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
    known: dict[str, FilterClass] = catalog.memory.setdefault("filter classes", {})
    found = known.get(filter)
    if found is None:
        found = _class_of(catalog, filter)
        if len(known) < REMEMBERED:
            known[filter] = found
    return found


def shape_of(filter: str) -> str:
    """The filter with a question mark for each literal, and for each list of them: values of rows are not stored. What
    only Lance parses is a shape of its own."""
    words: list[str] = []
    try:
        tokens = Tokens(filter)
        while tokens.kind != "end":
            literal = tokens.kind in _LITERALS or tokens.text.lower() in _WORDS
            words.append("?" if literal else tokens.text.lower() if tokens.kind == "word" else tokens.text)
            tokens.advance()
    except (NotUnderstood, Broken):
        return hashlib.sha256(" ".join(filter.split()).encode()).hexdigest()
    return _LISTS.sub("?", " ".join(words)).replace("- ?", "?")


def _class_of(catalog: Catalog, filter: str) -> FilterClass:
    manifest = catalog.snapshot.manifest
    return FilterClass(shape_of(filter), count(catalog, filter) / max(1, manifest.rows_in(manifest.live)))
