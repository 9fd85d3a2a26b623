"""Rewrites literals of users in a form that Lance accepts: `amount = 12.34` on a decimal column, `user_id = '7'`,
`ts >= '2026-01-02'`.

If only AND and OR are above a comparison, Lance converts a literal to the column's type and refuses those of other
types. A literal that has exactly one meaning as a value of the column is rewritten as that value; any other is refused
with an example that works. Below a NOT DataFusion compares in a common type, and nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from pennon.errors import InvalidFilter
from pennon.index.key_spans import Order
from pennon.query.filter.columns import Columns
from pennon.query.filter.grammar import read
from pennon.query.filter.literals import Literal
from pennon.query.filter.mistakes import refuse_quoted_columns
from pennon.query.filter.opaque_text import enclosed
from pennon.query.filter.syntax import Between, Comparison, Constant, Expression, In, Logic, Name
from pennon.query.filter.tokens import Broken, NotUnderstood
from pennon.wording import plural

# The start and end of a piece of the filter's text, and its replacement.
_Change = tuple[int, int, str]

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?:(:\d\d)(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
# Larger numbers are no values of any column; their digits would fill the memory.
_MAX_DIGITS = 80
_UTC = (None, "UTC", "+00:00")


@dataclass(frozen=True)
class Spelled:
    """A filter as Lance accepts it, and its syntax tree if the text is unchanged and was understood."""

    sql: str
    syntax: Expression | None


def spelled_for_lance(sql: str, columns: Mapping[str, pa.DataType]) -> Spelled:
    """The same filter with every literal in a form that Lance accepts for the column it is compared with.

    Raises:
        InvalidFilter: A literal has no meaning, or more than one, as a value of its column; or the filter has parts
            that Lance would ignore or fail on.
    """
    try:
        expression = read(sql)
    except NotUnderstood:
        return Spelled(enclosed(sql), None)
    except Broken:
        return Spelled(sql, None)  # the parser reports it
    refuse_quoted_columns(sql, expression, columns)
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
            return _decimal(str(value) if kind == "string" else written, order.type, path, written)
        case "int", ("float" | "string" | "binary"):
            return _integer(str(value) if kind == "string" else written, order, path, written)
        case "float", "string":
            if not _NUMBER.fullmatch(value):
                raise _refused(path, order.type, repr(value), f"{path} > 1.5")
            return repr(float(value))
        case "bool", ("int" | "float" | "string"):
            if str(value).lower() not in ("true", "false"):
                raise _refused(path, order.type, written, f"{path} = true")
            return str(value).upper()
        case "date", ("int" | "float" | "string"):
            if kind != "string" or not _is_day(value):
                raise _refused(path, order.type, written, f"{path} >= date '2026-01-31'")
            return f"date '{value}'"
        case "timestamp", ("int" | "float" | "string"):
            return _instant(value if kind == "string" else "", order.type, path, written)
        case "binary", "string":
            return _binary(value, order.type, path)
        case "string", ("int" | "float"):
            raise _refused(path, order.type, written, f"{path} = '{written}'")
        case _:
            return None


def _integer(text: str, order: Order, path: str, written: str) -> str:
    value = Decimal(text) if _NUMBER.fullmatch(text) else None
    if value is not None and value.adjusted() < _MAX_DIGITS and value == value.to_integral_value():
        number = int(value)
        if order.first[1] <= number < order.last[1]:
            return str(number)
    raise _refused(path, order.type, written, f"{path} = 7")


def _decimal(text: str, type_: pa.DataType, path: str, written: str) -> str:
    try:
        value = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        value = None
    unscaled = value.scaleb(type_.scale) if value is not None and value.is_finite() else None
    if unscaled is None or abs(unscaled) >= 10**type_.precision:
        raise _refused(path, type_, written, f"{path} = cast('1.5' as decimal({type_.precision}, {type_.scale}))")
    if unscaled != unscaled.to_integral_value():
        raise InvalidFilter(
            f"{written} cannot be compared with column {path}, which has type {type_}",
            f"Round it to {plural(type_.scale, 'decimal place')}, or compare floats: cast({path} as double) > {text}",
        )
    return f"cast('{value:f}' as decimal({type_.precision}, {type_.scale}))"


def _instant(text: str, type_: pa.DataType, path: str, written: str) -> str:
    match = _INSTANT.fullmatch(text)
    spelling = f"{path} >= timestamp '2026-01-31 12:00:00'"
    # A zone has a meaning only in a column of instants, which Lance compares with literals in UTC.
    if match is None or type_.tz not in _UTC or (match[5] and type_.tz is None):
        raise _refused(path, type_, written, spelling)
    day, minutes, seconds, fraction, zone = match.groups()
    try:
        instant = datetime.fromisoformat(f"{day} {minutes or '00:00'}{seconds or ':00'}{zone or ''}")
        if zone:
            instant = instant.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise _refused(path, type_, written, spelling) from None
    return f"timestamp '{instant}{fraction or ''}'"


def _binary(text: str, type_: pa.DataType, path: str) -> str:
    if type_ == pa.binary(16) and _UUID.fullmatch(text):
        return f"X'{text.replace('-', '').lower()}'"
    example = text.encode().hex()
    if pa.types.is_fixed_size_binary(type_) and len(example) != 2 * type_.byte_width:
        example = "00" * type_.byte_width
    raise _refused(path, type_, repr(text), f"{path} = X'{example}'")


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
        f"{written} cannot be compared with column {path}, which has type {type_}",
        f"Write it like this: {spelling}",
    )
