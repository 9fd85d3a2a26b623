"""What is wrong with a filter or an expression that Lance refuses, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa

from pennon.errors import InvalidFilter
from pennon.query.filter.syntax import Between, Comparison, Constant, Expression, In, Is, Like, Logic, Not
from pennon.wording import did_you_mean

BACKTICKS = "Lance reads text in double quotes as a string; put column names in backticks"

_MISSING = re.compile(r'No field named "?(?P<name>[^".]+)')
_UNEXPECTED = re.compile(r"Expected: \), found: (.+?)\)(?:,|$)", re.MULTILINE)
_UNCONVERTED = re.compile(r"Received literal (?P<literal>.+) and could not convert to literal of type '(?P<type>.+)'")
# The statement that Lance makes of a filter, around the reason.
_WRAPPED = re.compile(r"Error (?:optimizing|parsing) .*\((?:LanceError\(\w+\)|sql parser error): (.+?)\)?", re.DOTALL)
_LITERAL = re.compile(r"\w+\((.*)\)", re.DOTALL)
_ITEM = "To find lists that contain an item, write array_has(tags, 'x')"

# By what Lance's message contains.
_REMEDIES = (
    ("Expected: (, found: ", f"After IN, write a list: id IN (1, 2). {_ITEM}"),
    ("precision and scale", "Write a decimal as a number, 12.34, or as cast('12.34' as decimal(12, 2))"),
    ("Operator && ", "Write AND instead of &&"),
    (" || ", "Write OR instead of ||, which joins strings"),
    ("boolean operation", "Write a condition on each side of AND and OR: name = 'a' OR name = 'b'"),
    ("Operator ~ ", "Write regexp_like(name, 'pattern')"),
    ("REGEXP", "Write regexp_like(name, 'pattern')"),
    ("INTERVAL", "Compute the date or time first and write it as a literal: ts >= timestamp '2026-01-31 12:00:00'"),
    ("SELECT ", "Pass only a condition, without SELECT: user_id = 42"),
    ("does not return a boolean", "Write a condition: user_id = 42"),
    ("to value of Date32", "Write a date as date '2026-01-31'"),
    ("parsing timestamp", "Write a timestamp as timestamp '2026-01-31 12:00:00'"),
)


def invalid_filter(sql: str, line: str, text: str) -> InvalidFilter:
    """The error about a filter that Lance refused. `line` is the first line of its message, `text` all of it."""
    if unexpected := _UNEXPECTED.search(text):
        return InvalidFilter(
            f"the filter does not parse at {unexpected[1]!r}: {sql!r}",
            "Pass only a condition; limit, order_by and columns are separate arguments",
        )
    if unconverted := _UNCONVERTED.search(line):
        return _wrong_literal(sql, unconverted["literal"], unconverted["type"])
    if wrapped := _WRAPPED.fullmatch(line):
        line = wrapped[1]
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in line), "See the filter syntax in docs/scan.md")
    if '"' in sql:
        remedy = f"{BACKTICKS}: `user id` = 42"
    return InvalidFilter(f"the filter {sql!r} cannot be evaluated: {line}", remedy)


def invalid_value(column: str, line: str, columns: Iterable[str]) -> InvalidFilter:
    """The error about a new value of a column that Lance refused with a message of this first line."""
    if missing := _MISSING.search(line):
        name = missing["name"]
        return InvalidFilter(
            f"the new value of {column!r} names a column that the table does not have: {name}",
            f"{did_you_mean(name, columns)} Text needs single quotes within the expression: \"'{name}'\"",
        )
    return InvalidFilter(f"the new value of {column!r} cannot be evaluated: {line}")


def refuse_quoted_columns(sql: str, expression: Expression, columns: Mapping[str, pa.DataType]) -> None:
    """Refuse conditions such as `"user id" = 42`, which compare two literals and hold for all rows or for none.

    Raises:
        InvalidFilter: Text in double quotes is the name of a column, and nothing but a column would make sense there.
    """
    if '"' not in sql:
        return
    match expression:
        case Not(operand=operand):
            refuse_quoted_columns(sql, operand, columns)
        case Logic(operands=operands):
            for operand in operands:
                refuse_quoted_columns(sql, operand, columns)
        case (
            Comparison(left=Constant() as one, right=Constant() as other)
            | Like(operand=Constant() as one, pattern=Constant() as other)
            | Between(operand=Constant() as one, low=Constant() as other, high=Constant())
        ):
            _refuse_quoted(sql, one, columns)
            _refuse_quoted(sql, other, columns)
        case In(operand=Constant() as constant) | Is(operand=Constant() as constant):
            _refuse_quoted(sql, constant, columns)
        case _:
            return


def _refuse_quoted(sql: str, constant: Constant, columns: Mapping[str, pa.DataType]) -> None:
    name = constant.literal.value
    if sql[constant.start : constant.end].startswith('"') and name in columns:
        raise InvalidFilter(f'the filter has column {name} in double quotes: "{name}"', f"{BACKTICKS}: `{name}`")


def _wrong_literal(sql: str, literal: str, type_: str) -> InvalidFilter:
    value = _LITERAL.fullmatch(literal)
    written = value[1].replace('"', "'") if value else literal
    kind, detailed, _ = type_.partition("(")
    if kind in ("List", "LargeList", "FixedSizeList"):
        return InvalidFilter(f"{written} in the filter {sql!r} is not a list", _ITEM)
    if detailed:
        remedy = f"Convert it: arrow_cast({written}, '{type_}')"
    else:
        remedy = "Write a value that the column's type can hold"
    return InvalidFilter(f"{written} in the filter {sql!r} is not a value of type {type_}", remedy)
