"""Update rows: executors compute and write the rows that a filter selects as new fragments, and the old ones are marked
deleted, in one commit.

Rows get new addresses; on a table with stable row ids they keep their ids. Indices keep what they cover, and the new
fragments are not covered until `optimize`. `update_column` changes a column in place instead, which reads and writes
that column of whole fragments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import InvalidArgument, PennonError
from pennon.format.failures import first_line
from pennon.format.new_rows import conformed, conformed_array, refuse_blobs, with_row_ids, write_new_rows
from pennon.format.row_changes import NewFragment, commit_moved_rows
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.schema import quote_identifier
from pennon.format.snapshot import Pin, Snapshot
from pennon.jobs.rows.change import RowChange, commit_rows, repeated
from pennon.jobs.rows.find import (
    FoundRows,
    add_rows,
    check_filter,
    count_rows,
    find_rows,
    opened,
    parts_to_rewrite,
    serialized,
)
from pennon.jobs.rows.plan import RowsPlan
from pennon.jobs.rows.written import deleting_recorded, record_fragments
from pennon.jobs.shared.cleanup import scratch_directory
from pennon.query.filter.mistakes import invalid_value
from pennon.query.scan.execute import is_damage
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, read_part
from pennon.wording import plural, sql_identifier

CHECKED = "__pennon_checked"


@dataclass(frozen=True)
class RowsUpdate:
    """SQL expressions for new values by column, and which rows get them; None: all."""

    values: tuple[tuple[str, str], ...]
    where: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, str], where: str | None) -> RowsUpdate:
        return cls(tuple(values.items()), where)


def plan_update(engine: Engine, snapshot: Snapshot, update: RowsUpdate) -> RowsPlan:
    """What `update_rows` would change."""
    check_update(snapshot, update)
    rows = find_rows(engine, snapshot, update.where)
    return RowsPlan(rows_updated=count_rows(rows), fragments=tuple(sorted(rows)))


def update_rows(engine: Engine, snapshot: Snapshot, update: RowsUpdate) -> tuple[Snapshot, RowsPlan, int]:
    """Update the rows that a filter selects. Returns the new version, what was done, and the bytes written.

    Raises:
        InvalidFilter: the SQL makes no sense over this table; nothing was written.
        CommitConflict: other writers kept changing the same rows; nothing was updated.
    """
    return repeated(snapshot, partial(_update, engine, update))


def check_update(snapshot: Snapshot, update: RowsUpdate) -> None:
    """Each expression must be SQL over this table, of a type that becomes that of its column."""
    if not update.values:
        raise InvalidArgument("no column gets a new value", 'Write update({"price": "price * 1.1"}, where="...")')
    check_filter(snapshot, update.where)
    for name, expression in update.values:
        column = snapshot.column(name)
        if "." in column.path and column.path == name:
            raise InvalidArgument(f"column {name!r} is part of another column", "Set the whole top-level column")
        try:
            # pylance computes nothing without a column that is stored.
            row = snapshot.first_row({CHECKED: expression, "stored": sql_identifier(name)})
        except PennonError:
            raise
        except (ValueError, OSError) as error:
            if is_damage(error):
                with snapshot.reading_rows():
                    raise
            raise invalid_value(name, first_line(error), snapshot.column_types) from error
        try:
            conformed_array(row[CHECKED].combine_chunks(), column.declared)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            given = row.schema.field(CHECKED).type
            raise InvalidArgument(
                f"the new value {expression} has type {given}, but column {name!r} has type {column.declared}",
                "Cast it: CAST(... AS ...)",
            ) from error


def _update(engine: Engine, update: RowsUpdate, snapshot: Snapshot) -> tuple[Snapshot, RowsPlan, int]:
    check_update(snapshot, update)
    refuse_blobs(snapshot)
    names = {snapshot.column(name).path: expression for name, expression in update.values}
    columns = {f.name: names.get(quote_identifier(f.name), sql_identifier(f.name)) for f in snapshot.schema}
    stable = snapshot.manifest.has_stable_row_ids
    request = ScanRequest(update.where, expressions=tuple(columns.items()), with_row_address=True, with_row_id=stable)
    parts = parts_to_rewrite(engine, snapshot, request)
    rows = sum(part.rows for part in parts)
    with scratch_directory(snapshot.store) as directory, deleting_recorded(snapshot, directory):
        rewrite = partial(_rewrite, snapshot.pin(), request, directory)
        results = engine.map("update rows", rewrite, parts, rows=rows)
    found: dict[int, BitMap] = {}
    for moved, _ in results:
        add_rows(found, opened(moved))
    fragments = tuple(fragment for _, written in results for fragment in written)
    done = RowsPlan(rows_updated=count_rows(found), fragments=tuple(sorted(found)))
    if not found:
        return snapshot, done, 0
    what = f"update {plural(done.rows_updated, 'row')} of {plural(len(found), 'fragment')}"
    counts = {"updated": done.rows_updated, "fragments": len(found)}
    change = RowChange(snapshot, found, fragments, what, counts)
    committed = commit_rows(engine, change, lambda base, deletions: commit_moved_rows(base, deletions, fragments))
    return committed, done, sum(fragment.size_bytes for fragment in fragments)


def _rewrite(pin: Pin, request: ScanRequest, directory: str, part: Part) -> tuple[FoundRows, list[NewFragment]]:
    """Task: the rows of a part that the filter selects, and fragments with their new values."""
    snapshot = pin.open()
    addresses: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []
    ids: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in read_part(pin, part, request):
            if batch.num_rows:
                addresses.append(batch.column(ADDRESS).to_numpy())
                if request.with_row_id:
                    ids.append(batch.column(ROW_ID).to_numpy())
                yield _conformed(batch, snapshot)

    fragments = write_new_rows(snapshot, rows())
    record_fragments(snapshot.store, directory, fragments)
    if not addresses:
        return [], []
    if request.with_row_id:
        fragments = with_row_ids(fragments, np.concatenate(ids))
    return serialized(np.concatenate(addresses)), fragments


def _conformed(batch: pa.RecordBatch, snapshot: Snapshot) -> pa.RecordBatch:
    try:
        return conformed(batch, snapshot.schema)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"a new value does not fit its column of {snapshot.uri}: {first_line(error)}", "Nothing was committed"
        ) from error
