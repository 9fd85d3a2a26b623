"""What a text search is asked for, checked before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.inverted.analysis.column_types import supports_type
from pennon.index.inverted.query import CombinedFields, Match, Phrase, Query, parse
from pennon.query.filter.reading import FilterLike
from pennon.query.scan.request import ScanRequest, check_request, column_names
from pennon.query.text.source import check_index, indexed_columns

SCORE = "_score"
# Words to search for, or a query composed of several; as pylance takes them, also with their columns.
TextQuery = str | Query
TextLike = TextQuery | Mapping[str, Any]
# A column, several of which the best counts, or None for all that have an index.
TextColumnsLike = str | Sequence[str] | None

_OF_WORDS = ("operator", "fuzziness", "max_expansions", "prefix_length")


class TextOptions(TypedDict, total=False):
    """The options of a text search, in addition to column, query and k.

    filter: only rows it selects are candidates.
    columns: those to return, every one by default; `_score` comes after them.
    operator: `"or"` finds rows with any of the words, `"and"` those with all of them.
    fuzziness: also find words within this edit distance, compared as they are in the index.
    max_expansions: at most this many words near to those of the query.
    prefix_length: leading characters in which a near word does not differ.
    index: the name of the index, where a column has several; the one that covers most rows by default.
    fast_search: leave out the rows that no index covers.
    """

    filter: FilterLike | None
    columns: Sequence[str] | None
    operator: str
    fuzziness: int | None
    max_expansions: int
    prefix_length: int
    index: str | None
    fast_search: bool
    with_row_id: bool
    with_row_address: bool


@dataclass(frozen=True)
class TextRequest:
    """What the user requests, without the queries; `k` None is for all rows that match."""

    k: int | None = 10
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    fast_search: bool = False
    with_row_id: bool = False
    with_row_address: bool = False
    offset: int = 0
    index: str | None = None

    @classmethod
    def of(cls, k: int | None, options: Mapping[str, Any], **more: Any) -> TextRequest:
        """From what users give.

        Raises:
            InvalidArgument: an option that text searches do not take, or a value of another type.
        """
        check_option_names(options)
        given = {name: value for name, value in options.items() if name not in _OF_WORDS and value is not None}
        for name in ("fast_search", "with_row_id", "with_row_address"):
            if not isinstance(given.get(name, False), bool):
                raise InvalidArgument(f"{name} must be True or False, not {given[name]!r}")
        if not isinstance(given.get("index", ""), str):
            raise InvalidArgument(f"index must be the name of an index, not {given['index']!r}")
        if "columns" in given:
            given["columns"] = column_names(given["columns"])
        if k is not None and (isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"k must be a whole number of at least 1, not {k!r}")
        return cls(k if k is None else int(k), **given, **more)


def check_option_names(names: Iterable[str]) -> None:
    """Whether text searches take options of these names."""
    unknown = sorted(set(names) - TextOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(TextOptions.__annotations__)
        raise InvalidArgument(f"text searches take no option {unknown[0]!r}", f"They take: {known}")


@dataclass(frozen=True, eq=False)
class TextQuestion:
    """A valid request with its queries, all of whose parts name their column."""

    request: TextRequest
    queries: tuple[Query, ...]
    columns: Mapping[str, Column]  # those that the queries name


def read_question(
    snapshot: Snapshot,
    request: TextRequest,
    column: TextColumnsLike,
    queries: Sequence[TextLike],
    options: Mapping[str, Any] | None = None,
) -> TextQuestion:
    """Queries with their columns; `options` are those of the request that are about the words of a plain string.

    Raises:
        ColumnNotFound: the table has no such column.
        IndexNotFound: the table has no index of the name given as `index`.
        UnsupportedColumn: a column that does not hold text.
        InvalidArgument: no column is named and none has an index, a value out of its range, or an index on another
            column.
    """
    check_request(snapshot, ScanRequest(columns=tuple(name for name in request.columns or () if name != SCORE)))
    words = words_of(options or {})
    asked = tuple(_read_query(snapshot, column, query, words) for query in queries)
    named = dict.fromkeys(name for query in asked for name in columns_of(query))
    columns = {name: _column(snapshot, name) for name in named}
    if request.index is not None and columns:
        check_index(snapshot, request.index, columns.values())
    return TextQuestion(request, asked, columns)


def words_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are about the words of a plain string."""
    return {name: value for name, value in options.items() if name in _OF_WORDS and value is not None}


def columns_of(query: Query) -> list[str]:
    """The columns that a query names."""
    found = [leaf.column for leaf in query.leaves() if isinstance(leaf, Match | Phrase)]
    found += [name for leaf in query.leaves() if isinstance(leaf, CombinedFields) for name in leaf.columns]
    return list(dict.fromkeys(name for name in found if name is not None))


def _read_query(snapshot: Snapshot, column: TextColumnsLike, given: TextLike, words: Mapping[str, Any]) -> Query:
    if isinstance(given, Mapping):
        unknown = given.keys() - {"query", "columns"}
        if unknown or "query" not in given:
            raise InvalidArgument(f"{given!r} is not a query", 'Write {"query": "words", "columns": ["title"]}')
        column = given.get("columns") if column is None else column
        given = given["query"]
    # A batch has thousands of plain strings: each becomes a query in one step.
    named = column if isinstance(column, str) else None
    query = _of_words(given, named, words) if not isinstance(given, Query) else given
    if isinstance(given, Query) and words:
        raise InvalidArgument(
            f"{next(iter(words))} is for plain strings, not for a {type(given).__name__}",
            "Give it to pennon.text.Match(...)",
        )
    if all(leaf.column is not None for leaf in query.leaves() if isinstance(leaf, Match | Phrase)):
        return query
    return query.within(_columns(snapshot, column))


def _of_words(given: object, column: str | None, words: Mapping[str, Any]) -> Query:
    if not isinstance(given, str):
        raise InvalidArgument(f"a text query is a string or one of pennon.text, not {given!r}", "Give a string")
    query = parse(given, column)
    if not words:
        return query
    if isinstance(query, Match):
        return Match(given, column, **words)
    raise InvalidArgument(f"{next(iter(words))} does not apply to a phrase", "Leave out the quotes, or the option")


def _columns(snapshot: Snapshot, column: TextColumnsLike) -> list[str]:
    """The columns of a query that names none."""
    if isinstance(column, str):
        return [column]
    if column is not None:
        listed = list(column_names(column))
        if not listed:
            raise InvalidArgument("no column is named", "Name at least one, or give None for all that have an index")
        return list(dict.fromkeys(listed))
    found = indexed_columns(snapshot)
    if not found:
        raise InvalidArgument(
            f"no column of {snapshot.uri} has an inverted index, and none is named",
            'Name the column, or build an index: table.create_index("body", "INVERTED")',
        )
    return found


def _column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not supports_type(column.type):
        raise UnsupportedColumn(
            f"column {column.path!r} of {snapshot.uri} is of type {column.type}, which text searches do not read",
            "Search columns of strings, or of lists of strings",
        )
    return column
