"""Reduce side of a merge: match the rows of a range of keys, decide by the clauses, and write the rows that come of it.

A task holds the source rows of its range, and fetches rows of the table block by block. Updated rows are written before
inserted ones, since row ids are kept by the first rows of a fragment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pennon.errors import InvalidArgument
from pennon.format.addresses import Addresses
from pennon.format.expressions import evaluate
from pennon.format.failures import first_line
from pennon.format.new_rows import conformed_array, with_row_ids, write_new_rows
from pennon.format.row_changes import NewFragment
from pennon.format.row_ids import RowIds
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.jobs.merge.clauses import SOURCE, TARGET, Clauses, Update
from pennon.jobs.merge.match import BY_SOURCE, Matching, rows_with_keys
from pennon.jobs.merge.schema import MergeSchema
from pennon.jobs.rows.find import FoundRows, serialized
from pennon.jobs.rows.written import record_fragments
from pennon.query.catalog import Catalog
from pennon.query.lookup.find import Lookup
from pennon.query.lookup.matching import KeyTable

# Keys that are looked up at once.
BLOCK_ROWS = 1 << 16

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MergeWork:
    """What every task of a merge is given. Without a directory it counts, and writes nothing."""

    pin: Pin
    clauses: Clauses
    schema: MergeSchema
    matching: Matching
    directory: str | None


@dataclass(frozen=True)
class Merged:
    """What a task did: rows of the table that go, fragments that come, and counts."""

    gone: FoundRows
    fragments: list[NewFragment]
    updated: int
    deleted: int
    inserted: int


@dataclass
class _Range:
    """The rows of one range of keys as they are decided on."""

    source: pa.Table
    matched: Mask  # source rows that have a match
    gone: list[Addresses] = field(default_factory=list[Addresses])
    ids: list[RowIds] = field(default_factory=list[RowIds])
    updated: int = 0
    deleted: int = 0
    inserted: int = 0


def merge_range(work: MergeWork, _: int, batches: Iterator[pa.RecordBatch]) -> Merged:
    """Reduce task."""
    snapshot = work.pin.open()
    source, targets, unmatched = _received(work, batches)
    range_ = _Range(source, np.zeros(source.num_rows, dtype=np.bool_))
    rows = _new_rows(work, snapshot, range_, targets)
    if work.directory is None:
        for batch in rows:
            del batch
        fragments = []
    else:
        fragments = write_new_rows(snapshot, rows)
        if range_.ids:
            fragments = with_row_ids(fragments, np.concatenate(range_.ids))
        record_fragments(snapshot.store, work.directory, fragments)
    _delete_unmatched(work, snapshot, range_, unmatched)
    gone = serialized(np.concatenate(range_.gone)) if range_.gone else []
    return Merged(gone, fragments, range_.updated, range_.deleted, range_.inserted)


def _received(work: MergeWork, batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Rows of the source, keys of rows of the table to match, and keys of those to delete without a match."""
    source: list[pa.RecordBatch] = []
    targets: list[pa.RecordBatch] = []
    unmatched: list[pa.RecordBatch] = []
    for batch in batches:
        if BY_SOURCE not in batch.schema.names:
            source.append(batch)
        elif batch.num_rows and batch.column(BY_SOURCE)[0].as_py():
            unmatched.append(batch)
        else:
            targets.append(batch)
    staged = work.schema.staged
    rows = pa.Table.from_batches([pa.record_batch(batch.columns, schema=staged) for batch in source], staged)
    return rows.combine_chunks(), _joined(targets), _joined(unmatched)


def _new_rows(work: MergeWork, snapshot: Snapshot, range_: _Range, targets: pa.Table) -> Iterator[pa.RecordBatch]:
    """Updated rows, then inserted ones."""
    clauses = work.clauses
    stable = snapshot.manifest.has_stable_row_ids
    wanted = [*work.schema.read, *([ROW_ID] if stable and clauses.updates else [])]
    columns = [name if name == ROW_ID else snapshot.column(name).path for name in wanted]
    lookup = Lookup(Catalog.read(snapshot, SHARED_CACHE), clauses.on, columns, float_bits=True)
    if clauses.matched or clauses.not_matched:
        for positions, addresses, found in _matches(work, lookup, range_.source, targets):
            range_.matched[positions] = True
            named = found.rename_columns(wanted) if wanted else found
            yield from _apply_matched(work, snapshot, range_, positions, addresses, named)
    if clauses.not_matched:
        yield from _inserted(work, snapshot, range_)


def _matches(
    work: MergeWork, lookup: Lookup, source: pa.Table, targets: pa.Table
) -> Iterator[tuple[Positions, Addresses, pa.Table]]:
    """Positions of source rows, addresses of the rows that they match, and columns of those."""
    keys = [_whole(source.column(name)) for name in work.clauses.on]
    fragments = BitMap(work.matching.looked_up)
    if fragments:
        for positions in _neighbors(keys[0]):
            block = lookup.read_keys([column.take(pa.array(positions)) for column in keys])
            for found in lookup.find(block, fragments):
                yield positions[found.keys], found.addresses, found.rows
    if targets.num_rows:
        table = KeyTable(_comparable(lookup, keys))
        own = _comparable(lookup, [_whole(targets.column(name)) for name in work.clauses.on])
        for positions, at in table.pairs(own, BLOCK_ROWS):
            addresses = targets.column(ADDRESS).to_numpy()[at]
            yield positions, addresses, lookup.rows(addresses)


def _neighbors(keys: pa.Array) -> Iterator[Positions]:
    """Blocks of keys that are next to each other in order, so that each page of an index is read for one block. Keys
    of types that Arrow does not sort stay in the order of the source."""
    order = np.arange(len(keys))
    if len(keys) > BLOCK_ROWS:
        with suppress(pa.ArrowNotImplementedError):
            plain = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
            order = pc.array_sort_indices(plain).to_numpy().astype(np.int64)
    for start in range(0, len(order), BLOCK_ROWS):
        yield order[start : start + BLOCK_ROWS]


def _apply_matched(
    work: MergeWork,
    snapshot: Snapshot,
    range_: _Range,
    positions: Positions,
    addresses: Addresses,
    targets: pa.Table,
) -> Iterator[pa.RecordBatch]:
    """The new rows of matched pairs; the first clause whose condition holds decides."""
    undecided = np.ones(len(positions), dtype=np.bool_)
    source = range_.source.take(pa.array(positions))
    update_number = 0
    for clause in work.clauses.matched:
        chosen = undecided & _holds(clause.condition, {SOURCE: source, TARGET: targets}, len(positions))
        undecided &= ~chosen
        at = np.flatnonzero(chosen)
        if isinstance(clause, Update):
            columns = work.schema.updates[update_number]
            update_number += 1
            if len(at):
                pairs = {SOURCE: source.take(pa.array(at)), TARGET: _taken(targets, at)}
                range_.updated += len(at)
                range_.gone.append(addresses[at])
                if ROW_ID in targets.column_names:
                    range_.ids.append(pairs[TARGET].column(ROW_ID).to_numpy())
                yield _updated(work, snapshot, columns, pairs)
        elif len(at):
            range_.deleted += len(at)
            range_.gone.append(addresses[at])


def _updated(
    work: MergeWork, snapshot: Snapshot, columns: Mapping[str, str | None], pairs: Mapping[str, pa.Table]
) -> pa.RecordBatch:
    source, target = pairs[SOURCE], pairs[TARGET]
    expressions = {name: text for name, text in columns.items() if text is not None}
    computed = evaluate(pairs, expressions) if expressions else pa.table({})
    values: dict[str, pa.Array] = {}
    for name in snapshot.schema.names:
        if name in expressions:
            values[name] = _whole(computed.column(name))
        elif name in columns or name in work.clauses.on:
            values[name] = _whole(source.column(name))
        else:
            values[name] = _whole(target.column(name))
    return _row_batch(snapshot, values)


def _inserted(work: MergeWork, snapshot: Snapshot, range_: _Range) -> Iterator[pa.RecordBatch]:
    new = np.flatnonzero(~range_.matched)
    for start in range(0, len(new), BLOCK_ROWS):
        rows = range_.source.take(pa.array(new[start : start + BLOCK_ROWS]))
        undecided = np.ones(rows.num_rows, dtype=np.bool_)
        for clause in work.clauses.not_matched:
            undecided &= ~_holds(clause.condition, {SOURCE: rows}, rows.num_rows)
        rows = rows.take(pa.array(np.flatnonzero(~undecided)))
        if rows.num_rows:
            range_.inserted += rows.num_rows
            given = {name: _whole(rows.column(name)) for name in rows.column_names}
            yield _row_batch(snapshot, given)


def _delete_unmatched(work: MergeWork, snapshot: Snapshot, range_: _Range, candidates: pa.Table) -> None:
    """Rows of the table that a clause selects and no row of the source matches; each once, though several may."""
    if not candidates.num_rows:
        return
    lookup = Lookup(Catalog.read(snapshot, SHARED_CACHE), work.clauses.on, float_bits=True)
    table = KeyTable(_comparable(lookup, [_whole(range_.source.column(name)) for name in work.clauses.on]))
    own = _comparable(lookup, [_whole(candidates.column(name)) for name in work.clauses.on])
    alone = ~rows_with_keys(table, own)
    addresses = np.unique(candidates.column(ADDRESS).to_numpy()[alone])
    if len(addresses):
        range_.deleted += len(addresses)
        range_.gone.append(addresses)


def _row_batch(snapshot: Snapshot, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Rows of the table; columns that are not given are NULL."""
    count = len(next(iter(values.values())))
    columns: list[pa.Array] = []
    for own in snapshot.schema:
        given = values.get(own.name)
        try:
            columns.append(conformed_array(pa.nulls(count) if given is None else given, own.type))
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"a new value does not fit column {own.name!r} of {snapshot.uri}: {first_line(error)}",
                "Nothing was committed",
            ) from error
    return pa.record_batch(columns, schema=snapshot.schema)


def _holds(condition: str | None, tables: Mapping[str, pa.Table], rows: int) -> Mask:
    if condition is None:
        return np.ones(rows, dtype=np.bool_)
    if not rows:
        return np.zeros(0, dtype=np.bool_)
    found = _whole(evaluate(tables, {"condition": condition}).column(0))
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def _comparable(lookup: Lookup, columns: list[pa.Array]) -> list[pa.Array]:
    return [key.comparable(values) for key, values in zip(lookup.keys, columns, strict=True)]


def _taken(table: pa.Table, at: Positions) -> pa.Table:
    return table.take(pa.array(at)) if table.num_columns else table


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).combine_chunks() if batches else pa.table({})


def _whole(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
