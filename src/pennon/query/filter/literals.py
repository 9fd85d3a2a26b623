"""SQL literals, and their position in the order of the column they are compared with.

The interpretation must be that of Lance, which scans fragments without an index by the same filter text. Lance
interprets a literal in two ways. If only AND and OR are above a comparison, it first converts the literal to the
column's type ("adopted": `f < 0.1` on a float32 column compares with the float32 nearest to 0.1, and `i < 1.5` on an
integer column is an error). Anywhere else, mainly below a NOT, DataFusion compares both sides in a common type (so
`NOT (f = 0.1)` is true for every row). A literal that the column's type represents exactly means the same in both, and
so does a CAST to the column's type. Every other case is left to the scan: `locate` returns None.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pennon.index.key_spans import Key, Order, float_key

MAX_INT64 = (1 << 63) - 1
MAX_UINT64 = (1 << 64) - 1


class Literal(NamedTuple):
    """A constant as written. A cast keeps the constant inside it as `value`, and its type in `cast`."""

    kind: str  # int, float, string, binary, bool, null, cast
    value: Any
    cast: SqlType | None = None


class SqlType(NamedTuple):
    """A type name of CAST, `::` or a typed string, in lower case, with the arguments in its parentheses."""

    name: str
    arguments: tuple[int, ...] = ()


class Place(NamedTuple):
    """The position of a literal: it equals the keys from `low` to `high` if `exact`, else it is somewhere between
    them."""

    low: Key
    high: Key
    exact: bool = True


def number(digits: str, negative: bool = False) -> Literal:
    """The number as Lance parses it: a 64-bit integer if it fits, else a double. The smallest int64 becomes a
    double."""
    if digits.isdigit() and len(digits) <= 20:
        value = int(digits)
        if value <= (MAX_INT64 if negative else MAX_UINT64):
            return Literal("int", -value if negative else value)
    return Literal("float", -float(digits) if negative else float(digits))


def locate(literal: Literal, order: Order, adopted: bool) -> Place | None:
    """The position of a literal in a column's order; None if only Lance can evaluate it."""
    match order.family:
        case "int":
            return _in_integers(literal, order)
        case "float":
            return _in_floats(literal, order, adopted)
        case "bool" if literal.kind == "bool":
            return Place(int(literal.value), int(literal.value))
        case "decimal":
            return _in_decimals(literal, order)
        case "string":
            return _in_strings(literal)
        case "binary" if literal.kind == "binary":
            return _in_binaries(literal, order)
        case "date":
            return _in_dates(literal, order)
        case "timestamp":
            return _in_timestamps(literal, order)
        case _:
            return None


def _in_integers(literal: Literal, order: Order) -> Place | None:
    value = _integer(literal)
    if value is None or not order.first[1] <= value < order.last[1]:
        return None
    return Place(value, value)


def _in_floats(literal: Literal, order: Order, adopted: bool) -> Place | None:
    value = _double(literal)
    if value is None:
        return None
    width = order.type.bit_width
    nearest = value if width == 64 else _narrowed(literal.value if literal.kind == "int" else value, width)
    # Lance rounds only an adopted literal to float32; its rounding to float16 differs between machines.
    same = nearest == (literal.value if literal.kind == "int" else value) or math.isnan(value)
    if not same and (width == 16 or not adopted or literal.kind == "cast"):
        return None
    if nearest == 0:
        return Place(float_key(-0.0, order.type), float_key(0.0, order.type))
    key = float_key(nearest, order.type)
    return Place(key, key)


def _in_decimals(literal: Literal, order: Order) -> Place | None:
    value = _decimal(literal)
    if value is None or order.type.scale < 0:
        return None
    key = value.scaleb(order.type.scale)
    if key != key.to_integral_value() or abs(key) >= 10**order.type.precision:
        return None
    return Place(int(key), int(key))


def _in_strings(literal: Literal) -> Place | None:
    if literal.cast == SqlType("string"):
        literal = literal.value
    if literal.kind != "string":
        return None
    try:
        key = literal.value.encode()
    except UnicodeEncodeError:
        return None
    return Place(key, key)


def _in_binaries(literal: Literal, order: Order) -> Place | None:
    if pa.types.is_fixed_size_binary(order.type) and len(literal.value) != order.type.byte_width:
        return None
    return Place(literal.value, literal.value)


def _in_dates(literal: Literal, order: Order) -> Place | None:
    days = _days(literal)
    if days is None:
        return None
    key = days if order.dense else days * 86_400_000
    return Place(key, key)


def _in_timestamps(literal: Literal, order: Order) -> Place | None:
    nanoseconds = _nanoseconds(literal)
    if nanoseconds is None or (order.type.unit == "ns" and not _fits_int64(nanoseconds)):
        return None
    key, rest = divmod(nanoseconds, _NANOSECONDS[order.type.unit])
    if order.type.tz in (None, "UTC", "+00:00"):
        return Place(key, key + bool(rest), exact=not rest)
    # In another zone a timestamp is interpreted as local time, a date as UTC: any offset is less than a day.
    day = 86_400_000_000_000 // _NANOSECONDS[order.type.unit]
    low, high = key - day, key + day + 1
    return Place(low, high, exact=False) if _fits_int64(low) and _fits_int64(high) else None


_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_UNIT_OF_PRECISION: dict[tuple[int, ...], str] = {(): "us", (0,): "s", (3,): "ms", (6,): "us", (9,): "ns"}
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "integer": 32, "bigint": 64}
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _integer(literal: Literal) -> int | None:
    if literal.kind == "int":
        return literal.value
    bits = _INTEGER_BITS.get(literal.cast.name) if literal.cast and not literal.cast.arguments else None
    if bits is None or literal.value.kind != "int":
        return None
    value = literal.value.value
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _double(literal: Literal) -> float | None:
    if literal.kind in ("int", "float"):
        return float(literal.value)
    if literal.cast is None or literal.cast not in (SqlType("double"), SqlType("float")):
        return None
    inner = literal.value
    if inner.kind == "string":
        known = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.get(inner.value.lower())
        if known is None and literal.cast == SqlType("double") and _DECIMAL.fullmatch(inner.value):
            known = float(inner.value)
        return known
    if inner.kind not in ("int", "float"):
        return None
    return float(inner.value) if literal.cast.name == "double" else _narrowed(inner.value, 32)


def _narrowed(value: float, bits: int) -> float:
    """The nearest float of 16 or 32 bits, rounded once (an int would otherwise first be rounded to a double)."""
    if isinstance(value, int):
        exact = np.array(value, dtype=np.uint64 if value > MAX_INT64 else np.int64)
    else:
        exact = np.array(value, dtype=np.float64)
    with np.errstate(all="ignore"):
        return float(exact.astype(f"f{bits // 8}"))


def _decimal(literal: Literal) -> Decimal | None:
    if literal.kind == "int":
        return Decimal(literal.value) if literal.value <= MAX_INT64 else None
    if literal.cast is None or literal.cast.name != "decimal" or len(literal.cast.arguments) != 2:
        return None
    inner, (precision, scale) = literal.value, literal.cast.arguments
    if inner.kind == "string" and _DECIMAL.fullmatch(inner.value):
        value = Decimal(inner.value)
    elif inner.kind in ("int", "float"):
        value = Decimal(repr(inner.value))
    else:
        return None
    # Up to 15 digits a double and its decimal text are the same number, and nothing is rounded below.
    unscaled = value.scaleb(scale) if value.is_finite() and len(value.as_tuple().digits) <= 15 else None
    if unscaled is None or unscaled != unscaled.to_integral_value():
        return None
    return value if precision <= 38 and abs(unscaled) < min(10**precision, 10**15) else None


def _days(literal: Literal) -> int | None:
    if literal.cast != SqlType("date") or literal.value.kind != "string" or not _DATE.fullmatch(literal.value.value):
        return None
    try:
        return (date.fromisoformat(literal.value.value) - _EPOCH.date()).days
    except ValueError:
        return None


def _nanoseconds(literal: Literal) -> int | None:
    days = _days(literal)
    if days is not None:  # DataFusion converts a date to nanoseconds before it converts it to any timestamp.
        nanoseconds = days * 86_400_000_000_000
        return nanoseconds if _fits_int64(nanoseconds) else None
    if literal.cast is None or literal.cast.name not in ("timestamp", "datetime") or literal.value.kind != "string":
        return None
    unit = _UNIT_OF_PRECISION.get(literal.cast.arguments)
    match = _TIMESTAMP.fullmatch(literal.value.value)
    if unit is None or match is None:
        return None
    day, time, fraction = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time or '00:00:00'}+00:00")
    except ValueError:
        return None
    nanoseconds = (moment - _EPOCH) // timedelta(seconds=1) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
    if nanoseconds % _NANOSECONDS[unit] or (unit == "ns" and not _fits_int64(nanoseconds)):
        return None
    return nanoseconds


def _fits_int64(value: int) -> bool:
    return -MAX_INT64 <= value <= MAX_INT64
