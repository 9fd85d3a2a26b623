"""Literals and types of Substrait in the SQL of filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from google.protobuf.wrappers_pb2 import StringValue, UInt64Value

from pennon.format.pb import substrait_pb2 as pb


class NotInSql(Exception):
    """The SQL of filters cannot express something; the message names it."""


_TYPES = {
    "bool": "boolean",
    "i8": "tinyint",
    "i16": "smallint",
    "i32": "int",
    "i64": "bigint",
    "fp32": "float",
    "fp64": "double",
    "string": "string",
    "timestamp": "timestamp",
    "date": "date",
}
_LEAST_INT64 = -(1 << 63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DAY, _FIRST_DAY = 2_932_896, -719_162  # of the years 1 to 9999
# In microseconds. DataFusion first parses the text of a timestamp as 64-bit nanoseconds, which end here.
_NANOSECONDS_END = (1 << 63) // 1000 - 1
_ARROW_UTC = "'Timestamp(Microsecond, Some(\"UTC\"))'"


def sql_type(type_: pb.Type) -> str:
    """The name of a type, as CAST takes it."""
    kind = type_.WhichOneof("kind")
    if kind == "decimal":
        return f"decimal({type_.decimal.precision}, {type_.decimal.scale})"
    if kind is None or getattr(type_, kind).type_variation_reference:
        raise NotInSql("it converts to a type that SQL does not name")
    return _TYPES[kind]


def typed_literal(literal: pb.Literal) -> str:
    """A literal with its type: in arithmetic, the type determines when numbers overflow."""
    text, kind = plain_literal(literal), literal.WhichOneof("literal_type")
    if kind == "null" and literal.null.WhichOneof("kind") is not None:
        return f"cast(NULL as {sql_type(literal.null)})"
    if kind in ("i8", "i16", "i32", "i64", "fp32", "fp64") and not text.startswith("cast("):
        return f"cast({text} as {_TYPES[kind]})"
    return text


def plain_literal(literal: pb.Literal, utc: bool = False) -> str:
    """A plain literal, equal to the value in any type that it is compared in. With a column in UTC, a timestamp needs
    no time zone."""
    kind = literal.WhichOneof("literal_type")
    match kind:
        case "null":
            return "NULL"
        case "boolean":
            return "TRUE" if literal.boolean else "FALSE"
        case "i8" | "i16" | "i32" | "i64":
            value = getattr(literal, kind)
            # Lance parses the smallest integer as a double.
            return f"cast('{value}' as bigint)" if value == _LEAST_INT64 else str(value)
        case "fp32" | "fp64":
            number = getattr(literal, kind)
            return repr(number) if math.isfinite(number) else f"cast('{number}' as {_TYPES[kind]})"
        case "string":
            return _quoted(literal.string)
        case "binary" | "fixed_binary":
            return f"X'{getattr(literal, kind).hex()}'"
        case "date":
            return _date(literal.date)
        case "timestamp":
            return _timestamp(literal.timestamp)
        case "timestamp_tz":
            if utc:
                return _timestamp(literal.timestamp_tz)
            return f"arrow_cast({literal.timestamp_tz}, {_ARROW_UTC})"
        case "decimal":
            return _decimal(literal.decimal)
        case "user_defined":
            return _wrapped(literal.user_defined.value)
        case _:
            raise NotInSql("it has a literal of a type that SQL cannot express")


def is_utc(type_: pa.DataType) -> bool:
    """Whether a column holds instants that Lance compares with timestamps of no time zone."""
    return pa.types.is_timestamp(type_) and type_.tz in ("UTC", "+00:00")


def is_value_of(literal: pb.Literal, type_: pa.DataType) -> bool:
    """Whether a literal means the same before and after it is converted to a column's type."""
    kind = literal.WhichOneof("literal_type")
    match kind:
        case "null":
            return True
        case "i8" | "i16" | "i32" | "i64":
            value = getattr(literal, kind)
            if pa.types.is_integer(type_):
                least = -(1 << (type_.bit_width - 1)) if pa.types.is_signed_integer(type_) else 0
                return least <= value < least + (1 << type_.bit_width)
            return (pa.types.is_float32(type_) or pa.types.is_float64(type_)) and abs(value) <= _FLOAT32_INTEGERS
        case "fp32":
            return pa.types.is_float32(type_) or pa.types.is_float64(type_)
        case "timestamp":
            return pa.types.is_timestamp(type_) and type_.tz is None and not literal.timestamp % _MICROS[type_.unit]
        case "timestamp_tz":
            return is_utc(type_) and not literal.timestamp_tz % _MICROS[type_.unit]
        case "decimal":
            decimal = literal.decimal
            missing = type_.scale - decimal.scale if pa.types.is_decimal128(type_) else -1
            return missing >= 0 and decimal.precision + missing <= type_.precision
        case _:
            return kind in _SAME and _SAME[kind](type_)


# Integers up to here are floats of 32 bits too.
_FLOAT32_INTEGERS = 1 << 24
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_SAME: dict[str, Callable[[pa.DataType], bool]] = {
    "boolean": pa.types.is_boolean,
    "fp64": pa.types.is_float64,
    "string": pa.types.is_string,
    "binary": pa.types.is_binary,
    "date": pa.types.is_date32,
}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _date(days: int) -> str:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return f"cast(cast({days} as int) as date)"
    return f"date '{(_EPOCH + timedelta(days=days)).date().isoformat()}'"


def _timestamp(microseconds: int) -> str:
    if abs(microseconds) > _NANOSECONDS_END:
        return f"arrow_cast({microseconds}, 'Timestamp(Microsecond, None)')"
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return f"timestamp '{moment.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"


def _decimal(decimal: pb.Decimal) -> str:
    unscaled = int.from_bytes(decimal.value, "little", signed=True)
    digits = str(abs(unscaled)).rjust(decimal.scale + 1, "0")
    whole, fraction = digits[: len(digits) - decimal.scale], digits[len(digits) - decimal.scale :]
    number = f"{'-' if unscaled < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"
    return f"cast('{number}' as decimal({decimal.precision}, {decimal.scale}))"


def _wrapped(value: pb.Wrapped) -> str:
    match value.type_url.rpartition(".")[2]:
        case "UInt64Value":
            return str(UInt64Value.FromString(value.value).value)
        case "StringValue":
            return _quoted(StringValue.FromString(value.value).value)
        case _:
            raise NotInSql("it has a literal of a type that SQL cannot express")
