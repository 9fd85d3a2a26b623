"""Rows of a table as rows of a table function."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as st

from pennon.format.rows import ADDRESS, ROW_ID
from pennon.spark.source import chosen_columns
from pennon.spark.sql.function import Call, FunctionSchema, Given, Rows
from pennon.spark.types import arrow_schema, cast_batch, spark_schema

# How names of computed columns end that are whole numbers.
RANK = "_rank"


def row_schema(call: Call, computed: tuple[str, ...] = ()) -> FunctionSchema:
    """The columns that a call names, every one by default, and then those that a search computes."""
    schema, given = call.snapshot.schema, call.constants
    names = [name for name in given.get("columns") or schema.names if name not in computed]
    names += [name for name, key in ((ROW_ID, "with_row_id"), (ADDRESS, "with_row_address")) if given.get(key)]
    names = list(dict.fromkeys(names))
    fields = spark_schema(chosen_columns(schema, names, call.snapshot.uri))
    for name in computed:
        fields = fields.add(name, st.IntegerType() if name.endswith(RANK) else st.FloatType())
    return call.schema(fields, (*names, *computed))


def rows_of(result: FunctionSchema, found: pa.Table) -> Rows:
    """The rows of a table in the types of a result."""
    wire = arrow_schema(result.schema)
    for batch in found.to_batches():
        columns = [values.to_pylist(maps_as_pydicts="strict") for values in cast_batch(batch, wire).columns]
        yield from zip(*columns, strict=True)


def options_of(given: Given, left_out: set[str]) -> dict[str, object]:
    """The options of a call; one that is NULL is not given. SQL's 0.9 and array(0.1, 0.2) are decimals."""
    return {name: _plain(value) for name, value in given.items() if name not in left_out and value is not None}


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in cast(list[Any], value)]
    return float(value) if isinstance(value, Decimal) else value
