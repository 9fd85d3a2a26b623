"""Arrow types converted for Spark, which lacks unsigned numbers, half floats and fixed-size lists."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def spark_form(type_: pa.DataType) -> pa.DataType:
    """The type that values are cast to before they go to Spark. A type without another form stays as it is."""
    if isinstance(type_, pa.BaseExtensionType):
        return spark_form(type_.storage_type)
    if types.is_dictionary(type_):
        return spark_form(type_.value_type)
    if types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    if types.is_duration(type_):
        return pa.duration("us")
    if types.is_time(type_):
        return pa.time64("ns")
    if types.is_fixed_size_binary(type_):
        return pa.binary()
    if types.is_map(type_):
        return pa.map_(spark_form(type_.key_type), spark_form(type_.item_type))
    if types.is_struct(type_):
        return pa.struct([field.with_type(spark_form(field.type)) for field in type_])
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(spark_form(type_.value_type)))
    return WIDER.get(type_, type_)
