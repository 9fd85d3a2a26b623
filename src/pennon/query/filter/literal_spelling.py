"""Rewrites literals of users in a form that Lance accepts: `amount = 12.34` on a decimal column, `user_id = '7'`, `ts
>= '2026-01-02'`.

If only AND and OR are above a comparison, Lance converts a literal to the column's type and refuses those of other
types. A literal that has exactly one meaning as a value of the column is rewritten as that value; any other is refused
with an example that works. Below a NOT DataFusion compares in a common type, and nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from pennon.errors import InvalidFilter
from pennon.index.key_spans import Order
from pennon.query.filter.columns import Columns
from pennon.query.filter.grammar import read
from pennon.query.filter.literals import Literal
from pennon.query.filter.syntax import Between, Comparison, Constant, Expression, In, Logic, Name
from pennon.query.filter.tokens import Broken, NotUnderstood

# The start and end of a piece of the filter's text, and its replacement.
_Change = tuple[int, int, str]

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?)?", re.ASCII)
_UTC = (None, "UTC", "+00:00")


@dataclass(frozen=True)
class Spelled:
    """A filter as Lance accepts it, and its syntax tree if the text is unchanged and was understood."""

    sql: str
    syntax: Expression | None


def spelled_for_lance(sql: str, columns: Mapping[str, pa.DataType]) -> Spelled:
    """The same filter with every literal in a form that Lance accepts for the column it is compared with.

    Raises:
        InvalidFilter: A literal has no meaning, or more than one, as a value of its column.
    """
    try:
        expression = read(sql)
    except (NotUnderstood, Broken):
        return Spelled(sql, None)  # the parser reports errors; SQL that only Lance understands is unchanged
    speller = _Speller(sql, Columns(columns))
    changes = sorted(speller.changes(expression), reverse=True)
    for start, end, text in changes:
        sql = sql[:start] + text + sql[end:]
    return Spelled(sql, None if changes else expression)


class _Speller:
    def __init__(self, sql: str, columns: Columns) -> None:
        self.sql = sql
        self.columns = columns

    def changes(self, expression: Expression) -> Iterator[_Change]:
        match expression:
            case Logic():
                for operand in expression.operands:
                    yield from self.changes(operand)
            case (
                Comparison(left=Name() as name, right=Constant() as constant)
                | Comparison(left=Constant() as constant, right=Name() as name)
            ):
                yield from self.change(name, constant)
            case Between(operand=Name() as name, low=Constant() as low, high=Constant() as high):
                yield from self.change(name, low)
                yield from self.change(name, high)
            case In(operand=Name() as name):
                yield from self.change_list(name, expression)
            case _:
                return

    def change(self, name: Name, constant: Constant) -> Iterator[_Change]:
        column = self.columns.find(name)
        text = column and _spelled(constant.literal, column[1], column[0], self.sql[constant.start : constant.end])
        if text is not None:
            yield constant.start, constant.end, text

    def change_list(self, name: Name, expression: In) -> Iterator[_Change]:
        column = self.columns.find(name)
        if column is None or len(name.parts) > 1:  # DataFusion handles fields of structs
            return
        path, order = column
        texts = [_spelled(literal, order, path, repr(literal.value)) for literal in expression.literals]
        if any(texts):
            plain = [_plain(literal) for literal in expression.literals]
            if any(text is None and own is None for text, own in zip(texts, plain, strict=True)):
                return
            start = self.sql.index("(", expression.operand.end)
            items = ", ".join(text or own or "" for text, own in zip(texts, plain, strict=True))
            yield start, expression.end, f"({items})"


def _spelled(literal: Literal, order: Order, path: str, written: str) -> str | None:
    """The literal in a form that Lance accepts for a column; None if it needs no change."""
    kind, value = literal.kind, literal.value
    match order.family, kind:
        case "decimal", ("float" | "string"):
            return _decimal(str(value) if kind == "string" else written, order.type, path)
        case "int", "string":
            if not _INTEGER.fullmatch(value) or not order.first[1] <= int(value) < order.last[1]:
                raise _refused(path, order.type, repr(value), f"{path} = 7")
            return str(int(value))
        case "float", "string":
            if not _NUMBER.fullmatch(value):
                raise _refused(path, order.type, repr(value), f"{path} > 1.5")
            return repr(float(value))
        case "date", "string":
            if not _is_day(value):
                raise _refused(path, order.type, repr(value), f"{path} >= date '2026-01-31'")
            return f"date '{value}'"
        case "timestamp", "string":
            return _instant(value, order.type, path)
        case "binary", "string":
            raise _refused(path, order.type, repr(value), f"{path} = X'{str(value).encode().hex()}'")
        case "string", ("int" | "float"):
            raise _refused(path, order.type, written, f"{path} = '{written}'")
        case _:
            return None


def _decimal(text: str, type_: pa.DataType, path: str) -> str:
    try:
        value = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        value = None
    unscaled = value.scaleb(type_.scale) if value is not None and value.is_finite() else None
    spelling = f"{path} = cast('1.5' as decimal({type_.precision}, {type_.scale}))"
    if unscaled is None or unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**type_.precision:
        raise _refused(path, type_, text, spelling)
    return f"cast('{value:f}' as decimal({type_.precision}, {type_.scale}))"


def _instant(text: str, type_: pa.DataType, path: str) -> str:
    match = _INSTANT.fullmatch(text)
    spelling = f"{path} >= timestamp '2026-01-31 12:00:00'"
    if match is None or type_.tz not in _UTC:
        raise _refused(path, type_, repr(text), spelling)
    day, minutes, seconds = match.groups()
    clock = f"{minutes or '00:00'}{seconds or ':00'}"
    try:
        datetime.fromisoformat(f"{day} {clock[:8]}")
    except ValueError:
        raise _refused(path, type_, repr(text), spelling) from None
    return f"timestamp '{day} {clock}'"


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return _DAY.fullmatch(text) is not None


def _plain(literal: Literal) -> str | None:
    """The text of a literal in a list."""
    match literal.kind:
        case "null":
            return "NULL"
        case "int":
            return str(literal.value)
        case "float":
            return repr(literal.value)
        case "string":
            return "'" + literal.value.replace("'", "''") + "'"
        case _:
            return None


def _refused(path: str, type_: pa.DataType, written: str, spelling: str) -> InvalidFilter:
    return InvalidFilter(
        f"{written} has no single meaning as a value of column {path}, which has type {type_}",
        f"Write it like this: {spelling}",
    )
