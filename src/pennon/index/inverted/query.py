"""Queries: what is asked, without how it is found. They compose as pylance's do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from pennon.errors import InvalidArgument

# Beyond this an edit distance means nothing, and a dictionary would be gone through as a whole.
MOST_FUZZINESS = 16
MOST_EXPANSIONS = 10_000
MOST_PREFIX = MOST_SLOP = (1 << 31) - 1


class Operator(Enum):
    """Whether one term is enough or all must be there."""

    OR = "or"
    AND = "and"

    @classmethod
    def of(cls, name: Operator | str) -> Operator:
        """By name, in any case."""
        if isinstance(name, Operator):
            return name
        try:
            return cls(name.lower())
        except (ValueError, AttributeError):
            raise InvalidArgument(f"unknown operator {name!r}", "Use 'or' or 'and'") from None


class Occur(Enum):
    """What a clause of a `Boolean` demands."""

    MUST = "must"
    SHOULD = "should"
    MUST_NOT = "must_not"


@dataclass(frozen=True)
class Query:
    """Anything that can be searched for."""

    def __and__(self, other: Query) -> Query:
        return Boolean(((Occur.MUST, self), (Occur.MUST, other)))

    def __or__(self, other: Query) -> Query:
        return Boolean(((Occur.SHOULD, self), (Occur.SHOULD, other)))

    def parts(self) -> tuple[Query, ...]:
        """Queries that it is composed of."""
        return ()

    def leaves(self) -> Iterator[Query]:
        """All queries below it that are not composed, or itself."""
        if not self.parts():
            yield self
        for part in self.parts():
            yield from part.leaves()

    def within(self, columns: Sequence[str]) -> Query:
        """The same query, with columns for what names none: a match in several of them is the best of its columns.

        Raises:
            InvalidArgument: a phrase without a column, where there are several or none.
        """
        return self


@dataclass(frozen=True)
class Match(Query):
    """Documents with any or all terms of a text. With fuzziness, also with terms within that edit distance: the first
    `max_expansions` of them, which share `prefix_length` characters with the term. Without a column, that of the
    search."""

    text: str
    column: str | None = None
    boost: float = 1.0
    fuzziness: int = 0
    max_expansions: int = 50
    operator: Operator = Operator.OR
    prefix_length: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "operator", Operator.of(self.operator))
        _check_text(self.text)
        _check_boost(self.boost)
        _check_whole("fuzziness", self.fuzziness, 0, MOST_FUZZINESS)
        _check_whole("max_expansions", self.max_expansions, 1, MOST_EXPANSIONS)
        _check_whole("prefix_length", self.prefix_length, 0, MOST_PREFIX)

    def within(self, columns: Sequence[str]) -> Query:
        if self.column is not None:
            return self
        if len(columns) == 1:
            return replace(self, column=columns[0])
        return MultiMatch(
            self.text,
            tuple(columns),
            (self.boost,) * len(columns),
            self.operator,
            self.fuzziness,
            self.max_expansions,
            self.prefix_length,
        )


@dataclass(frozen=True)
class Phrase(Query):
    """Documents that have the terms of a text in its order, each up to `slop` places further from the one before."""

    text: str
    column: str | None = None
    slop: int = 0

    def __post_init__(self) -> None:
        _check_text(self.text)
        _check_whole("slop", self.slop, 0, MOST_SLOP)

    def within(self, columns: Sequence[str]) -> Query:
        if self.column is not None:
            return self
        if len(columns) != 1:
            listed = ", ".join(map(repr, columns))
            raise InvalidArgument(f"a phrase is searched for in one column, not in {listed}", "Name one of them")
        return replace(self, column=columns[0])


@dataclass(frozen=True)
class Boost(Query):
    """Documents of `positive`, whose scores lose `negative_boost` times what they have in `negative`."""

    positive: Query
    negative: Query
    negative_boost: float = 0.5

    def __post_init__(self) -> None:
        _check_query(self.positive)
        _check_query(self.negative)
        if isinstance(self.negative_boost, str) or not -math.inf < self.negative_boost < math.inf:
            raise InvalidArgument(f"negative_boost is {self.negative_boost!r}", "Use a finite number")

    def parts(self) -> tuple[Query, ...]:
        return self.positive, self.negative

    def within(self, columns: Sequence[str]) -> Query:
        return replace(self, positive=self.positive.within(columns), negative=self.negative.within(columns))


@dataclass(frozen=True)
class MultiMatch(Query):
    """Documents that match in any of the columns, with the best of their scores."""

    text: str
    columns: Sequence[str]
    boosts: Sequence[float] | None = None
    operator: Operator = Operator.OR
    fuzziness: int = 0
    max_expansions: int = 50
    prefix_length: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "operator", Operator.of(self.operator))
        object.__setattr__(self, "columns", _checked_columns(self))
        object.__setattr__(self, "boosts", None if self.boosts is None else tuple(self.boosts))
        self.parts()  # each checks its values

    def parts(self) -> tuple[Query, ...]:
        boosts = self.boosts or (1.0,) * len(self.columns)
        near = self.fuzziness, self.max_expansions, self.operator, self.prefix_length
        pairs = zip(self.columns, boosts, strict=True)
        return tuple(Match(self.text, column, boost, *near) for column, boost in pairs)


@dataclass(frozen=True)
class CombinedFields(Query):
    """Documents that have any or all terms in the columns together, scored as if these were one (BM25F): the weight of
    a column multiplies how often it has a term, and its length. At least one column needs an index, and all that have
    one must analyze text alike."""

    text: str
    columns: Sequence[str]
    boosts: Sequence[float] | None = None
    operator: Operator = Operator.OR

    def __post_init__(self) -> None:
        _check_text(self.text)
        object.__setattr__(self, "operator", Operator.of(self.operator))
        object.__setattr__(self, "columns", _checked_columns(self))
        object.__setattr__(self, "boosts", None if self.boosts is None else tuple(self.boosts))
        for boost in self.weights:
            _check_boost(boost)
            if boost < 1:
                raise InvalidArgument(f"a boost of combined fields is {boost!r}", "Use numbers of at least 1")
        if len(set(self.columns)) < len(self.columns):
            raise InvalidArgument("combined fields name a column twice", "Name each once")

    @property
    def weights(self) -> tuple[float, ...]:
        """Of each column."""
        return (1.0,) * len(self.columns) if self.boosts is None else tuple(self.boosts)


@dataclass(frozen=True)
class Boolean(Query):
    """Documents of all MUST clauses, or without any of those of at least one SHOULD clause, and of no MUST_NOT clause.
    Scores of MUST and SHOULD clauses add up."""

    clauses: Sequence[tuple[Occur, Query]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "clauses", tuple(self.clauses))
        for clause in self.clauses:
            if not isinstance(clause, tuple) or len(clause) != 2 or not isinstance(clause[0], Occur):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
                raise InvalidArgument(f"{clause!r} is not a clause", "Give pairs such as (Occur.MUST, Match('word'))")
            _check_query(clause[1])
        if all(occur is Occur.MUST_NOT for occur, _ in self.clauses):
            raise InvalidArgument("a Boolean needs a clause that finds documents", "Add a MUST or a SHOULD clause")

    def parts(self) -> tuple[Query, ...]:
        return tuple(query for _, query in self.clauses)

    def within(self, columns: Sequence[str]) -> Query:
        return Boolean(tuple((occur, query.within(columns)) for occur, query in self.clauses))

    def of(self, occur: Occur) -> list[Query]:
        """The clauses of a kind."""
        return [query for demanded, query in self.clauses if demanded is occur]


def parse(text: str, column: str | None = None) -> Match | Phrase:
    """The query that a plain string is: a phrase in double quotes, otherwise a match of any term."""
    if len(text) > 2 and text.startswith('"') and text.endswith('"'):
        return Phrase(text[1:-1], column)
    return Match(text, column)


def _checked_columns(query: MultiMatch | CombinedFields) -> tuple[str, ...]:
    name = type(query).__name__
    if isinstance(query.columns, str):
        raise InvalidArgument(f"a {name} takes a list of columns, not {query.columns!r}", "Give a list")
    columns = tuple(query.columns)
    if not columns:
        raise InvalidArgument(f"a {name} needs a column", "Name at least one")
    if query.boosts is not None and len(query.boosts) != len(columns):
        raise InvalidArgument(f"{len(columns)} columns have {len(query.boosts)} boosts", "Give one for each")
    return columns


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidArgument(f"a query is text, not {text!r}", "Give a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("a query has half of a surrogate pair, which is in no text", "Leave it out") from None


def _check_query(query: object) -> None:
    if not isinstance(query, Query):
        raise InvalidArgument(f"{query!r} is not a query", "Compose queries of pennon.text")


def _check_boost(boost: object) -> None:
    if isinstance(boost, bool) or not isinstance(boost, int | float | np.number) or not 0 <= boost < math.inf:
        raise InvalidArgument(f"boost is {boost!r}", "Use a finite number that is not negative")


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InvalidArgument(f"{name} is {value!r}", f"Use a whole number from {least} to {most}")
