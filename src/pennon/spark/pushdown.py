"""Translates Spark's filters to Pennon's filter language.

Spark's order of floats and times is not Lance's: all NaNs are equal and the greatest, both zeros are equal, and times
have microseconds. Filters on such columns are translated so that they select every row that Spark keeps, and Spark
checks them again. Filters that cannot be translated are left to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from pennon.format.rows import ADDRESS, ROW_ID
from pennon.wording import sql_identifier

# Lance parses decimals exactly up to this many digits, and converts some timestamps through nanoseconds.
DECIMAL_DIGITS = 15
FIRST_INSTANT, LAST_INSTANT = datetime(1700, 1, 1, tzinfo=UTC), datetime(2250, 1, 1, tzinfo=UTC)
# Longer lists of floats and nanoseconds are left to Spark.
WIDENED_LIST = 100
MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_OPERATORS: dict[type[ds.Filter], str] = {}
_FUNCTIONS: dict[type[ds.Filter], str] = {}
# Spark 4.0 pushes no filters, and has no classes for them.
if hasattr(ds, "Filter"):
    _OPERATORS.update(
        {
            ds.EqualTo: "=",
            ds.EqualNullSafe: "=",
            ds.GreaterThan: ">",
            ds.GreaterThanOrEqual: ">=",
            ds.LessThan: "<",
            ds.LessThanOrEqual: "<=",
        }
    )
    _FUNCTIONS.update(
        {
            ds.StringStartsWith: "starts_with",
            ds.StringEndsWith: "ends_with",
            ds.StringContains: "contains",
        }
    )
_OPPOSITE = {"=": "!=", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}


@dataclass(frozen=True)
class Pushed:
    """A filter in SQL. When not exact, it may select more rows than Spark's, and Spark must check them."""

    sql: str
    exact: bool = True


def push(filter: ds.Filter, schema: pa.Schema) -> Pushed | None:
    """Translate a filter of Spark on a table; None if it cannot be translated."""
    negated = isinstance(filter, ds.Not)
    inner: Any = filter.child if isinstance(filter, ds.Not) else filter
    column = _column(getattr(inner, "attribute", ()), schema)
    if column is None:
        return None
    if isinstance(inner, ds.IsNull | ds.IsNotNull):
        return column.null_test(isinstance(inner, ds.IsNull) is not negated)
    if isinstance(inner, ds.EqualNullSafe) and inner.value is None:
        return column.null_test(not negated)
    if isinstance(inner, ds.In):
        return column.member(inner.value, negated)
    if type(inner) in _FUNCTIONS and column.is_text and isinstance(inner.value, str):
        call = f"{_FUNCTIONS[type(inner)]}({column.name}, {_quoted(inner.value)})"
        return Pushed(f"NOT {call}" if negated else call)
    if type(inner) not in _OPERATORS or inner.value is None:
        return None
    operator = _OPERATORS[type(inner)]
    pushed = column.compare(_OPPOSITE[operator] if negated else operator, inner.value)
    if pushed is not None and negated and isinstance(inner, ds.EqualNullSafe):
        return Pushed(f"({pushed.sql} OR {column.name} IS NULL)", pushed.exact)
    return pushed


def conjunction(conditions: Iterable[str]) -> str | None:
    # A line break, so that a comment at the end of a user's filter does not hide the parenthesis.
    return (
        " AND ".join(f"({condition}\n)" if "--" in condition else f"({condition})" for condition in conditions) or None
    )


@dataclass(frozen=True)
class _Column:
    """A column by its quoted path, and the conditions on it."""

    name: str
    type: pa.DataType

    @property
    def is_text(self) -> bool:
        return pa.types.is_string(self.type) or pa.types.is_large_string(self.type)

    @property
    def is_nanoseconds(self) -> bool:
        return pa.types.is_timestamp(self.type) and self.type.unit == "ns"

    def null_test(self, null: bool) -> Pushed | None:
        if pa.types.is_dictionary(self.type) or pa.types.is_struct(self.type) or pa.types.is_null(self.type):
            return None
        return Pushed(f"{self.name} IS {'' if null else 'NOT '}NULL")

    def member(self, values: Iterable[Any], negated: bool) -> Pushed | None:
        known = [value for value in values if value is not None]
        if not known or (negated and len(known) < len(tuple(values))):  # NOT IN a list with a NULL is never true
            return None
        if self._floats or self.is_nanoseconds:
            each = (
                [self.compare("=", value) for value in known] if len(known) <= WIDENED_LIST and not negated else [None]
            )
            kept = [pushed.sql for pushed in each if pushed is not None]
            return Pushed(f"({' OR '.join(kept)})", exact=False) if len(kept) == len(each) else None
        literals = [self._literal(value) for value in known]
        kept = [literal for literal in literals if literal is not None]
        if len(kept) < len(literals):
            return None
        return Pushed(f"{self.name} {'NOT ' if negated else ''}IN ({', '.join(kept)})")

    def compare(self, operator: str, value: Any) -> Pushed | None:
        if self._floats:
            return self._compare_floats(operator, value) if isinstance(value, float) else None
        if self.is_nanoseconds:
            return self._compare_nanoseconds(operator, value)
        literal = self._literal(value)
        return None if literal is None else Pushed(f"{self.name} {operator} {literal}")

    @property
    def _floats(self) -> bool:
        # Lance's rounding of a literal to float16 differs between machines.
        return pa.types.is_float32(self.type) or pa.types.is_float64(self.type)

    def _compare_floats(self, operator: str, value: float) -> Pushed | None:
        """Lance orders NaNs with a sign below -infinity, other NaNs above infinity."""
        name, number = self.name, "float" if pa.types.is_float32(self.type) else "double"
        least, most = f"cast('-inf' as {number})", f"cast('inf' as {number})"
        nan, real = f"({name} > {most} OR {name} < {least})", f"({name} <= {most} AND {name} >= {least})"
        if math.isnan(value):
            found = {"=": nan, ">=": nan, "!=": real, "<": real, "<=": f"{name} IS NOT NULL"}.get(operator)
            return None if found is None else Pushed(found, exact=False)
        low = high = f"cast('{value}' as {number})" if math.isinf(value) else repr(value)
        if value == 0:
            low, high = "-0.0", "0.0"
        sql = {
            "=": f"({name} >= {low} AND {name} <= {high})",
            "!=": f"({name} < {low} OR {name} > {high})",
            ">": f"({name} > {high} OR {name} < {least})",
            ">=": f"({name} >= {low} OR {name} < {least})",
            "<": f"({name} < {low} AND {name} >= {least})",
            "<=": f"({name} <= {high} AND {name} >= {least})",
        }[operator]
        return Pushed(sql, exact=False)

    def _compare_nanoseconds(self, operator: str, value: Any) -> Pushed | None:
        """Extend the range by a microsecond on either side."""
        if not isinstance(value, datetime) or operator == "!=":
            return None
        low, high = self._literal(value - MICROSECOND), self._literal(value + MICROSECOND)
        if low is None or high is None:
            return None
        if operator == "=":
            return Pushed(f"({self.name} >= {low} AND {self.name} <= {high})", exact=False)
        return Pushed(f"{self.name} {operator} {low if operator.startswith('>') else high}", exact=False)

    def _literal(self, value: Any) -> str | None:
        """The text of a value that Lance parses exactly in the column's type; None if there is none."""
        type_ = self.type
        if pa.types.is_integer(type_):
            return _integer(value, type_)
        if pa.types.is_boolean(type_):
            return str(value).lower() if isinstance(value, bool) else None
        if self.is_text:
            return _quoted(value) if isinstance(value, str) else None
        if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
            return f"X'{value.hex()}'" if isinstance(value, bytes) else None
        if pa.types.is_date32(type_):
            plain = isinstance(value, date) and not isinstance(value, datetime)
            return f"date '{value.isoformat()}'" if plain else None
        if pa.types.is_timestamp(type_):
            return _instant(value, type_) if isinstance(value, datetime) else None
        if pa.types.is_decimal128(type_):
            return _decimal(value, type_) if isinstance(value, Decimal) else None
        return None


def _column(path: tuple[str, ...], schema: pa.Schema) -> _Column | None:
    if path[:1] in ((ROW_ID,), (ADDRESS,)):
        return None
    found: Any = schema
    for part in path:
        places = found.get_all_field_indices(part) if isinstance(found, pa.Schema | pa.StructType) else []
        if len(places) != 1:
            return None
        found = found.field(places[0]).type
    if found is schema:
        return None
    return _Column(".".join(map(sql_identifier, path)), found)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _integer(value: Any, type_: pa.DataType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value != int(value):
        return None
    bits = type_.bit_width
    # The smallest int64 would be parsed as a double.
    least, most = (
        (1 - (1 << (bits - 1)), (1 << (bits - 1)) - 1) if pa.types.is_signed_integer(type_) else (0, (1 << bits) - 1)
    )
    return str(int(value)) if least <= value <= most else None


def _instant(value: datetime, type_: pa.DataType) -> str | None:
    """Lance interprets timestamps of zones other than UTC as local time."""
    if type_.tz not in (None, "UTC", "+00:00") or (value.tzinfo is None) is not (type_.tz is None):
        return None
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if not FIRST_INSTANT <= moment < LAST_INSTANT or moment.microsecond % _MICROSECONDS[type_.unit]:
        return None
    return f"timestamp '{moment.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"


def _decimal(value: Decimal, type_: pa.DataType) -> str | None:
    if not value.is_finite():
        return None
    unscaled = value.scaleb(type_.scale)
    digits = min(DECIMAL_DIGITS, type_.precision)
    if unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**digits:
        return None
    return f"cast('{value:f}' as decimal({type_.precision},{type_.scale}))"
