"""Functions over a user's DataFrame, lazily: nothing runs before the user acts on the result.

Like those of `tasks`, they run inside Spark's Python workers. But here no driver code collects results and errors, so a
`PennonError` fails the task like any other exception, and Spark reports it to the user.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from pennon.engine.blocks import Packer, unpack
from pennon.engine.tasks import attempt
from pennon.errors import BuildFailed
from pennon.wording import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

T = TypeVar("T")
Batches = Iterator[pa.RecordBatch]
# Destination, place among its blocks, batch.
Message = tuple[int, int, pa.RecordBatch]
# Place and batch.
Delivered = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class MapRows:
    """Rows to rows."""

    function: Callable[[Batches], Batches]

    def __call__(self, rows: Batches) -> Batches:
        with attempt():
            yield from self.function(rows)


@dataclass(frozen=True)
class MapTasks(Generic[T]):
    """Tasks, pickled one by one, to rows; the rows of the frame are their numbers."""

    function: Callable[[T], Batches]
    tasks: Sequence[bytes]

    def __call__(self, numbers: Batches) -> Batches:
        with attempt():
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    if number < len(self.tasks):
                        yield from self.function(pickle.loads(self.tasks[number]))


@dataclass(frozen=True)
class Packed(Generic[T]):
    """A function from a task to messages, as one to the rows of a frame that contain them."""

    function: Callable[[T], Iterator[Message]]

    def __call__(self, task: T) -> Batches:
        return _packed(self.function(task))


@dataclass(frozen=True)
class SendRows:
    """Rows to messages; the function receives the number of its Spark partition."""

    function: Callable[[int, Batches], Iterator[Message]]

    def __call__(self, rows: Batches) -> Batches:
        # Workers have Spark loaded.
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        with attempt():
            yield from _packed(self.function(context.partitionId(), rows))


@dataclass(frozen=True)
class AnswerBlocks:
    """Messages to messages, destination by destination. Destinations from number `lanes` on are lanes: their blocks are
    forwarded unread to destination minus `lanes`."""

    function: Callable[[int, Iterator[Delivered]], Iterator[Message]]
    lanes: int

    def __call__(self, rows: Batches) -> Batches:
        first = next(rows, None)
        if first is None:
            return
        destination = first.column("destination")[0].as_py()
        everything = _of_one_destination(destination, chain([first], rows))
        with attempt():
            if destination < self.lanes:
                yield from _packed(self.function(destination, _opened(everything)))
                return
            for some in everything:
                onward = pa.array([destination - self.lanes] * some.num_rows, pa.int32())
                yield pa.record_batch([onward, *some.columns[1:]], schema=some.schema)


@dataclass(frozen=True)
class ReceiveRows:
    """Messages, in the order of their places, to rows."""

    function: Callable[[Iterator[Delivered]], Batches]

    def __call__(self, rows: Batches) -> Batches:
        with attempt():
            yield from self.function(_opened(rows))


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as PySpark passes them.

    Raises:
        ValueError: a type that Arrow lacks.
        SparkUnavailable: the session of the frame was stopped.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    from pennon.engine.session import check_running  # noqa: PLC0415 - which imports this module

    check_running(frame.sparkSession)
    fields: list[pa.Field] = []
    for field in frame.schema.fields:
        try:
            fields.append(pa.field(field.name, to_arrow_type(field.dataType), field.nullable))
        except PySparkException as error:
            raise ValueError(field.name) from error
    return pa.schema(fields)


def numbered_columns(frame: DataFrame) -> DataFrame:
    """The same columns under the names 0, 1, ...: PySpark would parse a name with a dot as a path."""
    return frame.toDF(*map(str, range(len(frame.columns))))


def nested_schema(frame: DataFrame, name: str, items: pa.Schema) -> StructType:
    """The columns of a frame, and one with lists of such items. Raises ValueError for a type that Spark lacks."""
    from pyspark.sql.types import ArrayType, StructField, StructType  # noqa: PLC0415

    return StructType([*frame.schema.fields, StructField(name, ArrayType(frame_schema(items)))])


def flat_schema(frame: DataFrame, added: pa.Schema) -> StructType:
    """The columns of a frame, and more. Raises ValueError for a type that Spark lacks."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    return StructType([*frame.schema.fields, *frame_schema(added).fields])


def frame_schema(columns: pa.Schema) -> StructType:
    """Spark's schema of columns. Raises ValueError with the name of one whose type Spark lacks."""
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    fields: list[StructField] = []
    for field in columns:
        try:
            # Explicit: before Spark 4.2, a timestamp without a zone would become one in the session's zone.
            fields.append(StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True)))
        except PySparkException as error:
            raise ValueError(field.name) from error
    return StructType(fields)


def arrow_type_of(frame: DataFrame, name: str) -> pa.DataType | None:
    """The Arrow type of a column's single values; None for nested values, and for those that Arrow lacks."""
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    type_ = frame.schema[name].dataType
    if type_.typeName() in ("array", "map", "struct"):
        return None
    if type_.typeName() == "timestamp":  # PySpark would ask for a zone, or not, depending on its version
        return pa.timestamp("us", "UTC")
    try:
        return to_arrow_type(type_)
    except PySparkException:
        return None


def spark_type_name(frame: DataFrame, name: str) -> str:
    """The type of a column as Spark writes it."""
    return frame.schema[name].dataType.simpleString()


def joined(
    frame: DataFrame, other: DataFrame, on: Sequence[tuple[str, str]], how: str, columns: Sequence[str]
) -> DataFrame:
    """Spark's own join by pairs of columns whose names differ from all others, with these columns of the result."""
    from pyspark.sql.functions import expr  # noqa: PLC0415

    pairs = (f"{sql_identifier(own)} = {sql_identifier(theirs)}" for own, theirs in on)
    return frame.join(other, expr(" AND ".join(pairs)), how).select(*map(sql_identifier, columns))


def unnested(frame: DataFrame, name: str, *, outer: bool) -> DataFrame:
    """A row for every item of a list of structs, whose fields become columns; `outer` keeps rows without items.

    Spark repeats the other columns then, and only those that are used further on.
    """
    others = [sql_identifier(column) for column in frame.columns if column != name]
    return frame.selectExpr(*others, f"inline{'_outer' * outer}({name})")


def list_items(frame: DataFrame, name: str) -> str | None:
    """The type of the items of a column of arrays, as SQL writes it; None for other columns."""
    type_ = frame.schema[name].dataType
    element = getattr(type_, "elementType", None)
    return element.simpleString() if type_.typeName() == "array" and element is not None else None


def has_strings(frame: DataFrame, name: str) -> bool:
    """Whether a column holds strings."""
    return frame.schema[name].dataType.typeName() == "string"


def _packed(messages: Iterator[Message]) -> Batches:
    packer = Packer()
    for destination, place, batch in messages:
        yield from packer.add(destination, batch, place)
    yield from packer.flush()


def _of_one_destination(destination: int, rows: Batches) -> Batches:
    for some in rows:
        misplaced = set(some.column("destination").to_pylist()) - {destination}
        if misplaced:
            raise BuildFailed(f"Spark delivered blocks for {misplaced} to destination {destination}")
        yield some


def _opened(rows: Batches) -> Iterator[Delivered]:
    for some in rows:
        for number, place in enumerate(some.column("place").to_pylist()):
            for batch in unpack(some.slice(number, 1)):
                yield place, batch
