"""The syntax tree of a filter. Every node records its position in the text."""

from __future__ import annotations

from dataclasses import dataclass

from pennon.query.filter.literals import Literal


@dataclass(slots=True, kw_only=True, eq=False)
class Expression:
    """Any expression; this class itself is one that only a scan can evaluate. Its text is `sql[start:end]`."""

    start: int
    end: int


@dataclass(slots=True, eq=False)
class Constant(Expression):
    literal: Literal


@dataclass(slots=True, eq=False)
class Name(Expression):
    """A column: the parts of its path, and whether it is a single part in backticks, so that its case matters."""

    parts: list[str]
    verbatim: bool


@dataclass(slots=True, eq=False)
class Not(Expression):
    operand: Expression


@dataclass(slots=True, eq=False)
class Logic(Expression):
    """A chain of ANDs, or of ORs."""

    operator: str
    operands: list[Expression]


@dataclass(slots=True, eq=False)
class Comparison(Expression):
    operator: str
    left: Expression
    right: Expression


@dataclass(slots=True, eq=False)
class Between(Expression):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(slots=True, eq=False)
class In(Expression):
    """[NOT] IN a list of literals only."""

    operand: Expression
    literals: list[Literal]
    negated: bool


@dataclass(slots=True, eq=False)
class Is(Expression):
    """IS [NOT] NULL, TRUE or FALSE."""

    operand: Expression
    what: str
    negated: bool


@dataclass(slots=True, eq=False)
class Like(Expression):
    """LIKE, or ILIKE in `any_case`."""

    operand: Expression
    pattern: Expression
    negated: bool
    any_case: bool = False


@dataclass(slots=True, eq=False)
class Call(Expression):
    """One of the functions that indices answer, by its name in lower case."""

    function: str
    arguments: list[Expression]


@dataclass(slots=True, eq=False)
class Items(Expression):
    """An array of literals."""

    literals: list[Literal]
