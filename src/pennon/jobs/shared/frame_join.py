"""What joins of a DataFrame with a search have in common: checks of its columns, blocks of its rows, and the rows that
were found for each of them as a list.

Spark unfolds the lists, because it then repeats only those columns of a row that are used later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pennon.engine.frames import Batches, nested_schema
from pennon.engine.spark_types import spark_form
from pennon.errors import ColumnNotFound, InvalidArgument, UnsupportedColumn
from pennon.format.snapshot import Snapshot
from pennon.index.arrays import Int64s
from pennon.query.scan.request import METADATA_COLUMNS

if TYPE_CHECKING:
    from pennon.engine import DataFrame

RANK = "_rank"
WAYS = ("inner", "left")
# Bytes of rows read at once, in addition to the limit on their number, and approximately of rows returned at once.
BLOCK_BYTES = 32 << 20
RETURNED_BYTES = 8 << 20
# The first rows show the width of the columns that are added.
FIRST_RETURNED = 256


def check_frame(frame: DataFrame, query_column: str, how: str, ways: Sequence[str] = WAYS) -> None:
    """Whether a DataFrame can be joined by one of its columns.

    Raises:
        ColumnNotFound: it has no such column.
        InvalidArgument: it has columns that PySpark cannot pass, or an unknown way to join.
    """
    if how not in ways:
        raise InvalidArgument(f"unknown how={how!r}", f"Use one of: {', '.join(ways)}")
    if query_column not in frame.columns:
        raise ColumnNotFound(
            f"the DataFrame has no column {query_column!r}", f"Its columns are: {', '.join(frame.columns)}"
        )
    unsupported = next((name for name in frame.columns if "." in name or "`" in name), None)
    if unsupported is not None:  # PySpark would parse it as a path, and possibly find another column
        raise InvalidArgument(f"PySpark cannot pass a column {unsupported!r} with a dot or a backtick", "Rename it")


def added_columns(snapshot: Snapshot, computed: pa.Field, columns: Sequence[str], prefix: str) -> pa.Schema:
    """What a join with a search adds: the rank, what the search computed, and columns of the table."""
    return pa.schema([pa.field(RANK, pa.int32()), computed, *table_columns(snapshot, columns, prefix)])


def table_columns(snapshot: Snapshot, columns: Sequence[str], prefix: str) -> pa.Schema:
    """Columns of the table, in types that Spark has."""
    fields: list[pa.Field] = []
    for name in columns:
        type_ = pa.int64() if name in METADATA_COLUMNS else spark_form(snapshot.column(name).declared)
        fields.append(pa.field(prefix + name, type_))
    return pa.schema(fields)


def check_names(names: Sequence[str]) -> None:
    """Spark compares names without regard to case.

    Raises:
        InvalidArgument: two columns would have the same name.
    """
    lowered = [name.lower() for name in names]
    twice = next((name for name, low in zip(names, lowered, strict=True) if lowered.count(low) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"the join would have two columns {twice!r}",
            "Use prefix= for the table's columns, select fewer of them in columns=, or rename those of the DataFrame",
        )


def schema_with(frame: DataFrame, name: str, added: pa.Schema) -> Any:
    """The schema with the columns of a frame, and the lists.

    Raises:
        UnsupportedColumn: a column of the table whose type Spark lacks.
    """
    try:
        return nested_schema(frame, name, added)
    except ValueError as error:
        raise UnsupportedColumn(f"Spark has no type for column {error}", "Name the columns to return") from error


def blocks(batches: Batches, most_rows: int) -> Batches:
    """The same rows in larger batches, of at most `most_rows` rows."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, most_rows - rows)
            batch = batch.slice(piece.num_rows)
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows == most_rows or size >= BLOCK_BYTES:
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


class Returned:
    """Adds the column of lists, in batches of about the same size."""

    def __init__(self, name: str, added: pa.Schema) -> None:
        self._name, self._added = name, added
        self._step = FIRST_RETURNED

    def batches(self, rows: pa.RecordBatch, counts: Int64s, fetch: Callable[[int, int], pa.Table]) -> Batches:
        """`counts` are the rows found for each of the given rows. `fetch` returns those of a range of the given rows,
        with what the search computed and then the columns of the table."""
        start = 0
        while start < len(counts):
            stop = min(start + self._step, len(counts))
            lists = self._lists(fetch(start, stop), counts[start:stop])
            own = rows.slice(start, stop - start)
            schema = pa.schema([*own.schema, pa.field(self._name, lists.type)])
            yield pa.record_batch([*own.columns, lists], schema=schema)
            each = (own.nbytes + lists.nbytes) // (stop - start) + 1
            self._step = max(1, min(4 * self._step, RETURNED_BYTES // each))
            start = stop

    def _lists(self, fetched: pa.Table, counts: Int64s) -> pa.Array:
        computed = self._added.names[1]
        others = [name for name in fetched.schema.names if name != computed]
        ends = np.cumsum(counts)
        ranks = np.arange(1, len(fetched) + 1) - np.repeat(ends - counts, counts)
        columns = [pa.chunked_array([ranks]), *fetched.select([computed, *others]).columns]
        cast = [column.cast(field.type).combine_chunks() for column, field in zip(columns, self._added, strict=True)]
        structs = pa.StructArray.from_arrays(cast, fields=list(self._added))
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), structs)
