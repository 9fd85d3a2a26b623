"""Reads a table as a stream: the rows that each version added, in the order of versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pennon.errors import InvalidArgument
from pennon.format.appended import Added, added_rows, all_rows
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import open_store
from pennon.query.scan.part_size import ROWS_PER_PART
from pennon.query.scan.request import METADATA_COLUMNS
from pennon.query.scan.tasks import Part, read_part
from pennon.spark.errors import without_traceback
from pennon.spark.options import LATEST, StreamReadOptions
from pennon.spark.reader import ReadPlan
from pennon.spark.stream_positions import Offset, Position, between, limited
from pennon.spark.types import arrow_schema, cast_batch, spark_schema

# Spark up to 4.1 has no limits for Python sources, and reads all there is.
try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
except ImportError:
    _AvailableNow: Any = object

# Versions whose additions are kept in memory.
KEPT = 1000


class StreamPartition(InputPartition):
    """Fragments of one version, for a Spark task."""

    def __init__(self, pin: Pin, part: Part) -> None:
        super().__init__((pin, part))

    def __repr__(self) -> str:
        pin, part = self.value
        return f"StreamPartition(version {pin.version}, {part})"


class PennonStreamReader(DataSourceStreamReader, _AvailableNow):
    """Spark keeps one in a process for a whole query, and pickles another for its tasks."""

    def __init__(self, plan: ReadPlan, options: StreamReadOptions) -> None:
        self.plan = plan
        self.options = options
        self._target: int | None = None  # the newest version for a query that reads what there is, and ends
        # By version, and whether all of its rows are wanted: Spark up to 4.1 does not pass the start of a batch to
        # `latestOffset`, which then takes it for the first.
        self._known: dict[tuple[int, bool], Added] = {}

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        return {"start": self.options.starting_version}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        with without_traceback():
            self._target = self._newest()

    def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:  # noqa: N802  Spark's name
        """The position up to which the next batch reads. Spark up to 4.1 passes nothing, so that there are no limits;
        a limit of Spark is the one of `getDefaultReadLimit`, which does not know versions."""
        with without_traceback():
            newest = self._target or self._newest()
            position = None if start is None else Position.of(start)
            if position is None:
                position = Position.first(self.options.starting_version, newest)
                if self.options.starting_version == LATEST:
                    return position.to_offset()
            rows = self.options.max_rows if start is not None else None
            versions = self.options.max_versions if start is not None else None
            return limited(self._versions(position, newest), position, rows, versions).to_offset()

    def reportLatestOffset(self) -> Offset:  # noqa: N802  Spark's name
        with without_traceback():
            return Position(self._newest() + 1).to_offset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        with without_traceback():
            found = between(start, end)
            if found is None:
                return []
            first, last = found
            versions = self._versions(first, last.version if last.fragment else last.version - 1)
            return [
                partition
                for added in versions
                for partition in self._partitions(
                    added.version,
                    added.fragments[
                        first.fragment if added.version == first.version else 0 : last.fragment
                        if added.version == last.version
                        else None
                    ],
                )
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pin, part = partition.value
        wire = arrow_schema(spark_schema(self.plan.schema))
        with without_traceback():
            names = _names_in(pin.open(), self.plan)
            present = [name for name in names.values() if name is not None]
            request = replace(self.plan.request, columns=tuple(n for n in present if n not in METADATA_COLUMNS))
            if not present:
                request = replace(request, with_row_address=True)  # for the number of rows
            for batch in read_part(pin, part, request):
                if batch.num_rows:
                    yield cast_batch(_renamed(batch, names, wire), wire)

    def commit(self, end: Offset) -> None:
        """Nothing is kept of a batch."""

    def stop(self) -> None:
        """Nothing is held open."""

    def _partitions(self, version: int, fragments: tuple[tuple[int, int], ...]) -> Iterator[InputPartition]:
        pin = replace(self.plan.pin, version=version)
        chosen, rows = list[int](), 0
        most = self.plan.rows_per_partition or ROWS_PER_PART
        for fragment, more in fragments:
            if chosen and rows + more > most:
                yield StreamPartition(pin, Part(tuple(chosen), rows))
                chosen, rows = [], 0
            chosen.append(fragment)
            rows += more
        if chosen:
            yield StreamPartition(pin, Part(tuple(chosen), rows))

    def _versions(self, first: Position, newest: int) -> Iterator[Added]:
        for version in range(first.version, newest + 1):
            key = version, version == first.snapshot
            if key not in self._known:
                if len(self._known) >= KEPT:
                    self._known.clear()
                self._known[key] = self._added(*key)
            yield self._known[key]

    def _added(self, version: int, whole: bool) -> Added:
        store = open_store(self.plan.pin.location)
        if whole:
            return all_rows(store, version)
        first = version == self.options.starting_version
        return added_rows(store, version, self.options.on_update, first=first)

    def _newest(self) -> int:
        return Snapshot.open(self.plan.pin.location).version


def plan_stream_read(plan: ReadPlan, options: StreamReadOptions) -> PennonStreamReader:
    """The reader of a stream. Raises InvalidArgument if the table does not have the first version yet."""
    start, newest = options.starting_version, plan.pin.version
    if isinstance(start, int) and start > newest + 1:
        raise InvalidArgument(
            f"the stream is to start at version {start}, and {plan.pin.location.shown} has {newest} versions",
            f"Start at a version up to {newest + 1}, or leave out starting_version",
        )
    return PennonStreamReader(plan, options)


def _names_in(snapshot: Snapshot, plan: ReadPlan) -> dict[str, str | None]:
    """The columns of a stream and their names in a version: by field id, since columns are renamed, or else by name,
    since a column that is cast gets another id. None for columns that are added later."""
    ids = {field.name: field.id for field in plan.pin.open().manifest.fields if field.parent_id < 0}
    names = {field.id: field.name for field in snapshot.manifest.fields if field.parent_id < 0}
    found: dict[str, str | None] = {}
    for name in plan.schema.names:
        if name in METADATA_COLUMNS:
            found[name] = name
        else:
            found[name] = names.get(ids[name]) or (name if name in names.values() else None)
    return found


def _renamed(batch: pa.RecordBatch, names: dict[str, str | None], wire: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.nulls(batch.num_rows, wire.field(name).type) if own is None else batch.column(own)
        for name, own in names.items()
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(names))
