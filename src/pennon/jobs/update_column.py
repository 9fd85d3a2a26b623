"""Change a column in place: new values are computed and written on executors, fragment by fragment, and committed once.

Rows keep their addresses, so that no other index is touched. Indices on the column no longer cover the fragments that
were changed; `optimize` covers them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pennon.display import Displayed
from pennon.engine import Engine
from pennon.errors import InvalidArgument, InvalidFilter, PennonError, StoreUnavailable
from pennon.format.column_update import ColumnFile, commit_column_update, discard_column_file, write_column_file
from pennon.format.failures import first_line
from pennon.format.schema import stored_values
from pennon.format.snapshot import Pin, Snapshot
from pennon.jobs.shared.commit import log_commit
from pennon.jobs.shared.retry import attempts
from pennon.query.filter.mistakes import invalid_value
from pennon.query.scan.execute import is_damage
from pennon.wording import plural, sql_identifier

AFTER, CHOSEN, BEFORE = "after", "chosen", "before"


@dataclass(frozen=True)
class ColumnUpdate:
    """An SQL expression for new values, and which rows get them; None: all."""

    column: str
    expression: str
    where: str | None = None

    @property
    def projection(self) -> dict[str, str]:
        # pylance computes nothing without a column that is stored.
        values = {AFTER: self.expression, BEFORE: sql_identifier(self.column)}
        return values if self.where is None else values | {CHOSEN: self.where}


@dataclass(frozen=True)
class UpdatePlan(Displayed):
    """How many rows get a value, and in which fragments."""

    rows: int
    fragments: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        return {"rows": self.rows, "fragments": list(self.fragments)}

    def __str__(self) -> str:
        return f"{plural(self.rows, 'row')} of {plural(len(self.fragments), 'fragment')} would change"


def update_column(engine: Engine, snapshot: Snapshot, update: ColumnUpdate) -> tuple[Snapshot, UpdatePlan]:
    """May raise InvalidFilter for SQL that makes no sense, before anything is written."""
    column = snapshot.column(update.column)
    _check(snapshot, update, column.declared)
    pin, tasks = snapshot.pin(), _fragments(snapshot)
    rows = snapshot.manifest.rows_in(BitMap(tasks))
    results = engine.map("update", partial(_update_fragment, pin, update), tasks, rows=rows)
    written = [done for done in results if done]
    files = [file for file, _ in written]
    done = UpdatePlan(sum(rows for _, rows in written), tuple(file.fragment for file in files))
    if not files:
        return snapshot, done
    try:
        return _commit(snapshot, update, files), done
    except StoreUnavailable:
        raise
    except PennonError:
        # Only after a refusal is it certain that no version names the files.
        for file in files:
            discard_column_file(snapshot.store, file)
        raise


def _commit(snapshot: Snapshot, update: ColumnUpdate, files: Sequence[ColumnFile]) -> Snapshot:
    change = f"update column {update.column} of {plural(len(files), 'fragment')}"
    for attempt in attempts(snapshot, change):
        with attempt as base:
            committed = commit_column_update(base, files)
            log_commit(committed, change, fragments=len(files))
            return committed
    raise AssertionError("unreachable: the last attempt returns or raises")


def count_update(engine: Engine, snapshot: Snapshot, update: ColumnUpdate) -> UpdatePlan:
    """What `update_column` would change. Without a condition that is known at once."""
    _check(snapshot, update, snapshot.column(update.column).declared)
    tasks = _fragments(snapshot)
    rows = snapshot.manifest.rows_in(BitMap(tasks))
    if update.where is None:
        return UpdatePlan(rows, tuple(tasks))
    counts = engine.map("count", partial(_count_fragment, snapshot.pin(), update.where), tasks, rows=rows)
    return UpdatePlan(sum(counts), tuple(task for task, count in zip(tasks, counts, strict=True) if count))


def _fragments(snapshot: Snapshot) -> list[int]:
    return [fragment.id for fragment in snapshot.manifest.fragments.values() if fragment.live_rows]


def _count_fragment(pin: Pin, where: str, fragment: int) -> int:
    """Task."""
    return pin.open().count_in_fragment(fragment, where)


def _check(snapshot: Snapshot, update: ColumnUpdate, type_: pa.DataType) -> None:
    """Both must be SQL over this table, of the column's type and a condition."""
    try:
        row = snapshot.first_row(update.projection)
    except PennonError:
        raise
    except (ValueError, OSError) as error:
        if is_damage(error):
            with snapshot.reading_rows():
                raise
        raise invalid_value(update.column, first_line(error), snapshot.column_types) from error
    if update.where is not None and row.schema.field(CHOSEN).type != pa.bool_():
        raise InvalidFilter(f"{update.where!r} is not a condition but of type {row.schema.field(CHOSEN).type}")
    try:
        row[AFTER].cast(type_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        given = row.schema.field(AFTER).type
        raise InvalidArgument(
            f"{update.expression!r} is of type {given}, column {update.column!r} of type {type_}", "Cast it"
        ) from error


def _update_fragment(pin: Pin, update: ColumnUpdate, fragment: int) -> tuple[ColumnFile, int] | None:
    """Task: None where no row of the fragment changes."""
    snapshot = pin.open()
    rows = snapshot.manifest.fragments[fragment].live_rows
    if update.where is not None:
        rows = snapshot.count_in_fragment(fragment, update.where)
    if not rows:
        return None
    type_ = snapshot.column(update.column).declared

    def values() -> Iterator[pa.Array]:
        for batch in snapshot.project(fragment, update.projection):
            after = batch.column(AFTER).cast(type_)
            if update.where is None:
                yield after
            else:
                # pyarrow chooses between plain values only.
                before = stored_values(batch.column(BEFORE))
                yield pc.if_else(batch.column(CHOSEN).fill_null(False), stored_values(after), before).cast(type_)

    return write_column_file(pin, fragment, update.column, values()), rows
