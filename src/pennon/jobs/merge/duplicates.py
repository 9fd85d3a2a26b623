"""Refuse a source that has a key twice, before anything of the table is read or written."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pennon.engine import Engine
from pennon.engine.engine import Sent
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.jobs.merge.dealing import Ranges, choose_ranges
from pennon.jobs.merge.source import Staged, StagedSlice
from pennon.query.lookup.keys import KeyColumn
from pennon.wording import in_line, plural

# Keys that this process compares; more are compared by tasks.
FEW_KEYS = 200_000
EXAMPLES = 5

# The number of keys that occur more than once, and some of them.
Repeated = tuple[int, list[str]]


def refuse_duplicates(engine: Engine, snapshot: Snapshot, staged: Staged, on: tuple[str, ...], least: int) -> None:
    """Raises InvalidArgument if a key occurs twice. A key with NULL in it equals none. Tasks compare keys
    by `least` ranges of them, or more."""
    keys = tuple(KeyColumn(snapshot.column(name), float_bits=True) for name in on)
    if staged.rows <= FEW_KEYS:
        found = [_repeated(keys, on, [b for part in staged.slices() for b in staged.read(part, on)])]
    else:
        ranges = choose_ranges(staged, on, max(least, engine.parallelism))
        send, receive = partial(_send, staged, on, ranges), partial(_receive, keys, on)
        exchanged = engine.exchange("check keys", send, staged.slices(), receive, ranges.count, rows=staged.rows)
        found = list(exchanged.reduced.values())
    count = sum(number for number, _ in found)
    if count:
        examples = [example for _, some in found for example in some][:EXAMPLES]
        raise InvalidArgument(
            f"the source has {plural(count, 'key')} in more than one row, such as {', '.join(examples)}",
            "Leave one row for each key, as with dropDuplicates",
        )


def _send(staged: Staged, on: tuple[str, ...], ranges: Ranges, part: StagedSlice) -> Generator[Sent, None, None]:
    """Map task."""
    for batch in staged.read(part, on):
        yield from ranges.deal(batch)


def _receive(keys: tuple[KeyColumn, ...], on: tuple[str, ...], _: int, batches: Iterator[pa.RecordBatch]) -> Repeated:
    """Reduce task."""
    return _repeated(keys, on, list(batches))


def _repeated(keys: tuple[KeyColumn, ...], on: tuple[str, ...], batches: list[pa.RecordBatch]) -> Repeated:
    if not batches:
        return 0, []
    given = pa.Table.from_batches(batches).combine_chunks()
    comparable = pa.table(
        {str(n): key.comparable(_whole(given.column(name))) for n, (key, name) in enumerate(zip(keys, on, strict=True))}
    )
    named = [str(number) for number in range(len(keys))]
    rows = comparable.append_column("row", pa.array(range(len(given)), pa.int64())).drop_null()
    groups = rows.group_by(named).aggregate([("row", "count"), ("row", "min")])
    twice = groups.filter(pc.greater(groups.column("row_count"), 1))
    examples = given.take(twice.column("row_min").slice(0, EXAMPLES)).to_pylist()
    shown = [in_line(", ".join(f"{name} = {row[name]!r}" for name in on)) for row in examples]
    return twice.num_rows, shown


def _whole(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
