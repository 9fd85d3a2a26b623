"""Arrow tables to Spark's DataFrames and back, on every version: Spark 3.5 does neither by itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pennon.engine.spark_types import spark_form


def frame_of(spark: Any, table: pa.Table, schema: Any = None) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    if spark.version < "4":
        rows = [tuple(row.values()) for row in table.to_pylist()]
        plain = pa.schema([pa.field(field.name, spark_form(field.type)) for field in table.schema])
        return spark.createDataFrame(rows, schema or from_arrow_schema(plain))
    return spark.createDataFrame(table, schema)


def rows_of(frame: Any) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    batches = frame._collect_as_arrow()
    # There is no batch without rows, and so no schema.
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(frame.schema).empty_table()
