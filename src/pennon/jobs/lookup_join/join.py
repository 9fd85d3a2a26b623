"""The lookup join: the rows of a Spark DataFrame with the rows of a table that have the same keys, lazily.

    send    rows of the DataFrame, with all their columns, to the task that has the range of their keys; where no index
            covers fragments, also the keys and addresses of their rows
    find    look up the keys of a block of rows, fetch the rows found, and join both

The DataFrame is computed once, and its rows are exchanged once. If no index helps, Spark joins it with Pennon's scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from pennon.engine import SparkEngine
from pennon.engine.frames import (
    ReceiveRows,
    SendRows,
    arrow_type_of,
    flat_schema,
    frame_schema,
    joined,
    spark_type_name,
)
from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.snapshot import Snapshot
from pennon.jobs.lookup_join.plan import WAYS, LookupJoinPlan, LookupRequest, plan_lookup_join
from pennon.jobs.lookup_join.tasks import find_rows, read_rows, send_keys, send_rows
from pennon.jobs.shared.frame_join import check_frame, check_names, table_columns
from pennon.query.catalog import Catalog
from pennon.query.lookup.keys import KeyColumn
from pennon.query.scan.request import ScanRequest, check_request

if TYPE_CHECKING:
    from pennon.engine import DataFrame

# A column, several of the same names, or columns of the DataFrame and those of the table.
OnLike = str | Sequence[str] | Mapping[str, str]
KEY = "_pennon_key_"


def lookup_join(
    catalog: Catalog, frame: DataFrame, request: LookupRequest, *, prefix: str = "", memory_bytes: int
) -> DataFrame:
    """`prefix` is prepended to the names of the table's columns."""
    engine = SparkEngine.attach(frame.sparkSession)
    plan = planned(catalog, frame, request, prefix, memory_bytes)
    added = table_columns(catalog.snapshot, request.columns, prefix)
    try:
        if plan.uses_index:
            return _by_index(engine, frame, plan, added)
        return _by_scan(engine, frame, plan, added, catalog.snapshot)
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise UnsupportedColumn(f"Spark has no type for column {error}", "Name the columns to return") from error


def planned(
    catalog: Catalog, frame: DataFrame, request: LookupRequest, prefix: str, memory_bytes: int
) -> LookupJoinPlan:
    """The plan of a join, after everything that the user passed is checked.

    Raises:
        ColumnNotFound: the table or the DataFrame has no such column.
        UnsupportedColumn: rows are not looked up by values of such a type.
        InvalidArgument: keys of another type than the column, or two columns of one name.
    """
    snapshot, added = catalog.snapshot, table_columns(catalog.snapshot, request.columns, prefix)
    for own, theirs in request.on:
        check_frame(frame, own, request.how, WAYS)
        _check_type(frame, own, KeyColumn(snapshot.column(theirs)))
    keys = [f"{KEY}{number}" for number in range(len(request.on))]
    check_names([*frame.columns, *added.names, *keys])
    engine = SparkEngine.attach(frame.sparkSession)
    return plan_lookup_join(catalog, request, memory_bytes, lambda: engine.parallelism)


def lookup_request(
    snapshot: Snapshot, on: OnLike, how: str, columns: Sequence[str] | None, filter: str | None, keys: int | None
) -> LookupRequest:
    """The arguments of a user. All columns but the keys if none are named.

    Raises:
        ColumnNotFound: the table has no such column.
        InvalidArgument: no keys, an unknown way to join, or columns where only the DataFrame's are returned.
    """
    pairs = _pairs(on)
    if how not in WAYS:
        raise InvalidArgument(f"unknown how={how!r}", f"Use one of: {', '.join(WAYS)}")
    if how in ("semi", "anti"):
        if columns:
            raise InvalidArgument(f"a join with how={how!r} returns no columns of the table", "Leave out columns=")
        columns = ()
    theirs = {snapshot.column(path).path for _, path in pairs}
    if columns is None:
        columns = [name for name in snapshot.schema.names if snapshot.column(name).path not in theirs]
    named = tuple(dict.fromkeys(columns))
    check_request(snapshot, ScanRequest(columns=named))
    return LookupRequest(pairs, how, named, filter, keys)


def _by_index(engine: SparkEngine, frame: DataFrame, plan: LookupJoinPlan, added: pa.Schema) -> DataFrame:
    more = (partial(send_keys, plan), plan.scans) if plan.scans else None
    sent = engine.deliver(frame, SendRows(partial(send_rows, plan)), plan.tasks, more)
    return engine.apply(sent, ReceiveRows(partial(find_rows, plan, added)), flat_schema(frame, added))


def _by_scan(
    engine: SparkEngine, frame: DataFrame, plan: LookupJoinPlan, added: pa.Schema, snapshot: Snapshot
) -> DataFrame:
    keys: list[tuple[KeyColumn, pa.Field]] = []
    for number, (own, theirs) in enumerate(plan.request.on):
        type_ = arrow_type_of(frame, own)
        keys.append((KeyColumn(snapshot.column(theirs)), pa.field(f"{KEY}{number}", type_)))
    schema = frame_schema(pa.schema([*(field for _, field in keys), *added]))
    read = partial(read_rows, plan, keys, added)
    rows = engine.apply_to_tasks(read, plan.scans, schema, sum(part.rows for part in plan.scans))
    pairs = [(own, field.name) for (own, _), (_, field) in zip(plan.request.on, keys, strict=True)]
    how = {"semi": "left_semi", "anti": "left_anti"}.get(plan.request.how, plan.request.how)
    return joined(frame, rows, pairs, how, [*frame.columns, *added.names])


def _pairs(on: object) -> tuple[tuple[str, str], ...]:
    if isinstance(on, str):
        return ((on, on),)
    pairs: list[tuple[object, object]] = []
    if isinstance(on, Mapping):
        pairs = [*cast(Mapping[object, object], on).items()]
    elif isinstance(on, Sequence) and not isinstance(on, bytes):
        pairs = [(name, name) for name in cast(Sequence[object], on)]
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise InvalidArgument(
            f"on takes columns, not {on!r}",
            'Write on="user_id", on=["day", "user_id"], or on={"uid": "user_id"}, the column of the DataFrame first',
        )
    named = [theirs for _, theirs in pairs]
    if len(set(named)) < len(named):
        raise InvalidArgument(f"on names column {next(n for n in named if named.count(n) > 1)!r} twice", "Name it once")
    return tuple((str(own), str(theirs)) for own, theirs in pairs)


def _check_type(frame: DataFrame, own: str, key: KeyColumn) -> None:
    type_ = arrow_type_of(frame, own)
    try:
        key.check(pa.null() if type_ is None else type_, own)
    except InvalidArgument:
        raise InvalidArgument(
            f"column {own!r} of the DataFrame has type {spark_type_name(frame, own)}, and column {key.column.path!r} "
            f"of the table has type {key.column.type}",
            "Cast the column of the DataFrame to that type",
        ) from None
