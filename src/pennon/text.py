"""Queries of text searches: what `Table.search_text` takes in place of a plain string. They compose as pylance's do.

from pennon.text import Boolean, Match, Occur, Phrase

Match("range partitioned") & Phrase("inverted index")
Boolean([(Occur.MUST, Match("index", "title")), (Occur.MUST_NOT, Match("draft", "body"))])
"""

from pennon.index.inverted.query import (
    Boolean,
    Boost,
    CombinedFields,
    Match,
    MultiMatch,
    Occur,
    Operator,
    Phrase,
    Query,
)

__all__ = ["Boolean", "Boost", "CombinedFields", "Match", "MultiMatch", "Occur", "Operator", "Phrase", "Query"]
