"""Queries: what is asked, without how it is found. They compose as pylance's do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from pennon.errors import InvalidArgument

# Beyond this an edit distance means nothing, and a dictionary would be gone through as a whole.
MOST_FUZZINESS = 16
MOST_EXPANSIONS = 10_000


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
        except ValueError:
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
        if not 0 <= self.boost < math.inf:
            raise InvalidArgument(f"boost is {self.boost}", "Use a finite number that is not negative")
        if not 0 <= self.fuzziness <= MOST_FUZZINESS:
            raise InvalidArgument(f"fuzziness is {self.fuzziness}", f"Use 0 to {MOST_FUZZINESS}")
        if not 1 <= self.max_expansions <= MOST_EXPANSIONS:
            raise InvalidArgument(f"max_expansions is {self.max_expansions}", f"Use 1 to {MOST_EXPANSIONS}")
        if self.prefix_length < 0:
            raise InvalidArgument(f"prefix_length is {self.prefix_length}", "Use 0 or more")


@dataclass(frozen=True)
class Phrase(Query):
    """Documents that have the terms of a text in its order, each up to `slop` places further from the one before."""

    text: str
    column: str | None = None
    slop: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.slop < 1 << 31:
            raise InvalidArgument(f"slop is {self.slop}", "Use 0 or more")


@dataclass(frozen=True)
class Boost(Query):
    """Documents of `positive`, whose scores lose `negative_boost` times what they have in `negative`."""

    positive: Query
    negative: Query
    negative_boost: float = 0.5

    def parts(self) -> tuple[Query, ...]:
        return self.positive, self.negative


@dataclass(frozen=True)
class MultiMatch(Query):
    """Documents that match in any of the columns, with the best of their scores."""

    text: str
    columns: tuple[str, ...]
    boosts: tuple[float, ...] | None = None
    operator: Operator = Operator.OR

    def __post_init__(self) -> None:
        object.__setattr__(self, "operator", Operator.of(self.operator))
        if not self.columns:
            raise InvalidArgument("a MultiMatch needs a column", "Name at least one")
        if self.boosts is not None and len(self.boosts) != len(self.columns):
            raise InvalidArgument(f"{len(self.columns)} columns have {len(self.boosts)} boosts", "Give one for each")

    def parts(self) -> tuple[Query, ...]:
        boosts = self.boosts or (1.0,) * len(self.columns)
        pairs = zip(self.columns, boosts, strict=True)
        return tuple(Match(self.text, column, boost, operator=self.operator) for column, boost in pairs)


@dataclass(frozen=True)
class Boolean(Query):
    """Documents of all MUST clauses, or without any of those of at least one SHOULD clause, and of no MUST_NOT clause.
    Scores of MUST and SHOULD clauses add up."""

    clauses: tuple[tuple[Occur, Query], ...] = field(default=())

    def __post_init__(self) -> None:
        if all(occur is Occur.MUST_NOT for occur, _ in self.clauses):
            raise InvalidArgument("a Boolean needs a clause that finds documents", "Add a MUST or a SHOULD clause")

    def parts(self) -> tuple[Query, ...]:
        return tuple(query for _, query in self.clauses)

    def of(self, occur: Occur) -> list[Query]:
        """The clauses of a kind."""
        return [query for demanded, query in self.clauses if demanded is occur]


def parse(text: str, column: str | None = None) -> Match | Phrase:
    """The query that a plain string is: a phrase in double quotes, otherwise a match of any term."""
    if len(text) > 2 and text.startswith('"') and text.endswith('"'):
        return Phrase(text[1:-1], column)
    return Match(text, column)
