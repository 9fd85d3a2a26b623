"""DataFusion merges IN lists on one column and loses NULL semantics; such conditions are left to the scan.

`i NOT IN (1, 2) OR i NOT IN (3, 4)` keeps the rows where i is NULL, and so does `NOT (i IN (1, 2) AND i IN (3, 4))`;
`i IN (1, 2) AND i NOT IN (1, NULL)` keeps 2. Indices would answer by SQL's rules, and an answer must not depend on the
fragments that an index covers. Lists that are neither negated nor below a NOT are merged correctly, and so are lists in
different conditions of one AND, except for NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pennon.query.filter.columns import Columns
from pennon.query.filter.literals import Literal
from pennon.query.filter.syntax import (
    Between,
    Call,
    Comparison,
    Constant,
    Expression,
    In,
    Is,
    Like,
    Logic,
    Name,
    Not,
)


@dataclass(frozen=True)
class InListMerging:
    """Finds the conditions of one filter that DataFusion evaluates incorrectly."""

    sql: str
    columns: Columns

    def affects_filter(self, conditions: list[Expression]) -> bool:
        """Whether the conditions, which are joined by AND, must not be split."""
        lists = [found for condition in conditions for found in self.lists(condition, below_not=False)]
        return any(found.negative and found.holds_null and _merges(found, lists) for found in lists)

    def affects(self, condition: Expression) -> bool:
        """Whether a single one of them must not be split."""
        lists = list(self.lists(condition, below_not=False)) if isinstance(condition, Logic | Not) else []
        return any(found.negative and _merges(found, lists) for found in lists)

    def lists(self, expression: Expression, below_not: bool) -> Iterator[_List]:
        """The conditions that DataFusion treats as IN lists; a float compared with zero is a list of both zeros."""
        match expression:
            case Not():
                yield from self.lists(expression.operand, below_not=True)
            case Logic():
                for operand in expression.operands:
                    yield from self.lists(operand, below_not)
            case In(operand=Name() as name):
                holds_null = any(literal.kind == "null" for literal in expression.literals)
                path = (self.columns.find(name) or ("",))[0]
                yield _List(path, expression.negated or below_not, holds_null)
            case (
                Comparison(left=Name() as name, right=Constant(literal=literal))
                | Comparison(left=Constant(literal=literal), right=Name() as name)
            ):
                yield from self.zeros(name, [literal], expression.operator != "=" or below_not)
            case Between(operand=Name() as name, low=Constant(literal=low), high=Constant(literal=high)):
                yield from self.zeros(name, [low, high], negative=True)
            case Name() | Constant() | Is(operand=Name() | Call()) | Like(operand=Name(), pattern=Constant()) | Call():
                return
            case _:
                text = self.sql[expression.start : expression.end].lower()
                if re.search(r"\b(in|is|not|between)\b|(?<![\w.])0", text) or len(re.findall("[=<>]+", text)) > 1:
                    yield _List("", holds_null="null" in text)

    def zeros(self, name: Name, literals: list[Literal], negative: bool) -> Iterator[_List]:
        column = self.columns.find(name)
        if column is None:
            yield _List("")
        elif column[1].family == "float" and any(one.kind == "cast" or one.value == 0 for one in literals):
            yield _List(column[0], negative)


class _List(NamedTuple):
    """A condition that DataFusion may treat as an IN list; the path is empty if it could be on any column."""

    path: str
    negative: bool = True
    holds_null: bool = False


def _merges(found: _List, lists: list[_List]) -> bool:
    return sum(not found.path or other.path in (found.path, "") for other in lists) > 1
