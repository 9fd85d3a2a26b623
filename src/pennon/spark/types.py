"""Conversion between Arrow types and Spark types: the Spark types of a table's columns, and Spark's own Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.rows import ADDRESS, ROW_ID

# Row ids and addresses are unsigned in Lance, and always small enough for Spark's bigint.
METADATA_TYPES: dict[str, st.DataType] = {ROW_ID: st.LongType(), ADDRESS: st.LongType()}

_SCALARS: dict[pa.DataType, st.DataType] = {
    pa.null(): st.NullType(),
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    # Spark has no unsigned integers: each goes to the next wider type.
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float16(): st.FloatType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.string_view(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.binary_view(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.DateType(),
}
# Spark's own Arrow types for its types.
_WIRE: dict[type[st.DataType], pa.DataType] = {
    st.NullType: pa.null(),
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.DayTimeIntervalType: pa.duration("us"),
}


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Spark's schema of a table's columns, including metadata columns. Everything is nullable, as in Spark's own
    sources."""
    fields = [
        st.StructField(field.name, METADATA_TYPES.get(field.name) or spark_type(field.type, field.name))
        for field in schema
    ]
    return st.StructType(fields)


def spark_type(type_: pa.DataType, column: str) -> st.DataType:
    """The Spark type that holds every value of an Arrow type; times keep microseconds."""
    if type_ in _SCALARS:
        return _SCALARS[type_]
    if pa.types.is_dictionary(type_):
        return spark_type(type_.value_type, column)
    if pa.types.is_fixed_size_binary(type_):
        return st.BinaryType()
    if pa.types.is_timestamp(type_):
        return st.TimestampNTZType() if type_.tz is None else st.TimestampType()
    if pa.types.is_time(type_):
        return st.StringType()  # Spark's type for times of day is still disabled
    if pa.types.is_duration(type_):
        return st.DayTimeIntervalType()
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return st.DecimalType(type_.precision, type_.scale)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return st.ArrayType(spark_type(type_.value_type, column))
    if pa.types.is_map(type_):
        return st.MapType(spark_type(type_.key_type, column), spark_type(type_.item_type, column))
    if pa.types.is_struct(type_):
        inner = [type_.field(i) for i in range(type_.num_fields)]
        return st.StructType([st.StructField(f.name, spark_type(f.type, f"{column}.{f.name}")) for f in inner])
    raise UnsupportedColumn(
        f"column {column!r} has the Arrow type {type_}, which Spark does not support",
        "Name the columns to read with the option columns, without this one",
    )


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow schema in which Spark passes and accepts rows of a schema; everything is nullable."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType, field.name)) for field in schema.fields])


def arrow_type(type_: st.DataType, column: str) -> pa.DataType:
    if isinstance(type_, st.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, st.ArrayType):
        return pa.list_(pa.field("element", arrow_type(type_.elementType, column)))
    if isinstance(type_, st.MapType):
        key = pa.field("key", arrow_type(type_.keyType, column), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(type_.valueType, column)))
    if isinstance(type_, st.StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.dataType, f"{column}.{f.name}")) for f in type_.fields])
    if type(type_) in _WIRE:
        return _WIRE[type(type_)]
    raise UnsupportedColumn(
        f"column {column!r} has Spark's type {type_.simpleString()}, which a table does not support",
        "Cast it or leave it out",
    )


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, in its order and in its types."""
    columns = [_cast(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    # Spark's times have microseconds. All other values must be preserved.
    try:
        return pc.cast(array, field.type, safe="[ns" not in str(array.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise InvalidArgument(
            f"values of column {field.name!r} do not fit the type {field.type}: {reason}",
            "Change the values, or the type",
        ) from error
