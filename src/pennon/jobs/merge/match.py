"""Map side of a merge: rows of the source, and keys of those rows of the table that no index finds."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.engine.engine import Sent
from pennon.format.rows import ADDRESS
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.jobs.merge.clauses import Clauses
from pennon.jobs.merge.dealing import Ranges
from pennon.jobs.merge.schema import filter_of_targets
from pennon.jobs.merge.source import Staged, StagedSlice
from pennon.query.catalog import Catalog
from pennon.query.lookup.find import Lookup
from pennon.query.lookup.matching import KeyTable
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, plan_parts, read_part
from pennon.wording import plural

# Beyond this share of the table's rows, reading its keys costs less than looking up those of the source.
LARGE_SHARE = 0.05
# Keys of the source that tasks hold to leave out other rows of the table before they are sent.
HELD_KEYS = 1 << 20

# Whether keys of the table are of a clause for rows without a match; the source does not have this column.
BY_SOURCE = "__pennon_by_source"


@dataclass(frozen=True)
class TargetPart:
    """Rows of the table to send: all, to be matched; or those of a clause, which are deleted if nothing matches."""

    part: Part
    request: ScanRequest
    by_source: bool


MergeTask = StagedSlice | TargetPart


@dataclass(frozen=True)
class Matching:
    """How rows of the table are matched: through indices in the fragments of `looked_up`, and in the others by reading
    their keys."""

    looked_up: tuple[int, ...]
    read: tuple[int, ...]
    indices: tuple[tuple[str, str], ...]
    by_source: bool
    rows_read: int  # at most, by tasks that read keys

    def lines(self, rows: int, *, here: bool) -> list[str]:
        """For a plan. `here`: in this process."""
        names = ", ".join(dict.fromkeys(name for _, name in self.indices))
        found = [f"matched through {names} in {plural(len(self.looked_up), 'fragment')}"] if self.looked_up else []
        read = [f"matched by reading the keys of {plural(len(self.read), 'fragment')}"] if self.read else []
        every = ["rows that no row of the source matches are found by reading the keys of all that the clause selects"]
        return [
            f"{rows:,} rows of the source{', merged in this process' * here}",
            *found,
            *read,
            *(every if self.by_source else []),
        ]


def plan_matching(snapshot: Snapshot, clauses: Clauses, source_rows: int) -> Matching:
    live = snapshot.manifest.live
    needed = bool(clauses.matched or clauses.not_matched)
    lookup = Lookup(Catalog.read(snapshot, SHARED_CACHE), clauses.on, float_bits=True)
    coverage = lookup.open_indices()
    total = snapshot.manifest.rows_in(BitMap(live))
    large = source_rows > LARGE_SHARE * total
    found = BitMap() if large or not needed else BitMap(coverage.exact)
    read = BitMap(live) - found if needed else BitMap()
    rows_read = total if clauses.by_source else snapshot.manifest.rows_in(read)
    return Matching(tuple(found), tuple(read), coverage.indices if found else (), bool(clauses.by_source), rows_read)


def target_parts(snapshot: Snapshot, clauses: Clauses, matching: Matching, rows_per_part: int) -> list[TargetPart]:
    """The parts of the table that tasks read."""
    columns = tuple(snapshot.column(key).path for key in clauses.on)
    catalog = Catalog.read(snapshot, SHARED_CACHE)
    keys = ScanRequest(None, columns, with_row_address=True)
    read = [
        TargetPart(part, keys, by_source=False)
        for part in plan_parts(catalog, keys, rows_per_part)
        for part in _within(part, BitMap(matching.read), snapshot)
    ]
    for clause in clauses.by_source:
        chosen = ScanRequest(filter_of_targets(clause.condition, snapshot), columns, with_row_address=True)
        read += [TargetPart(part, chosen, by_source=True) for part in plan_parts(catalog, chosen, rows_per_part)]
    return read


def send_rows(
    pin: Pin, staged: Staged, on: tuple[str, ...], ranges: Ranges, task: MergeTask
) -> Generator[Sent, None, None]:
    """Map task."""
    batches = staged.read(task) if isinstance(task, StagedSlice) else _target_rows(pin, staged, on, task)
    for batch in batches:
        yield from ranges.deal(batch)


def _target_rows(pin: Pin, staged: Staged, on: tuple[str, ...], task: TargetPart) -> Iterator[pa.RecordBatch]:
    """Keys under the names of the source, addresses, and whether they are of a clause for rows without a match."""
    paths = [pin.open().column(key).path for key in on]
    held = None if task.by_source or staged.rows > HELD_KEYS else _held(pin, staged, on)
    for batch in read_part(pin, task.part, task.request):
        keys = [batch.column(path) for path in paths]
        addresses = batch.column(ADDRESS)
        if held is not None:
            lookup, table = held
            own = [key.comparable(values) for key, values in zip(lookup.keys, keys, strict=True)]
            chosen = pa.array(np.flatnonzero(rows_with_keys(table, own)))
            keys, addresses = [values.take(chosen) for values in keys], addresses.take(chosen)
        if len(addresses):
            flags = pa.array(np.full(len(addresses), task.by_source))
            yield pa.record_batch([*keys, addresses, flags], names=[*on, ADDRESS, BY_SOURCE])


def rows_with_keys(table: KeyTable, rows: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows equal a key. Columns are in the form of `KeyColumn.comparable`."""
    found = np.zeros(len(rows[0]), dtype=np.bool_)
    for _, at in table.pairs(rows):
        found[at] = True
    return found


@lru_cache(maxsize=1)
def _held(pin: Pin, staged: Staged, on: tuple[str, ...]) -> tuple[Lookup, KeyTable]:
    """All keys of a small source, for the tasks of one worker process."""
    lookup = Lookup(Catalog.read(pin.open(), SHARED_CACHE), on, float_bits=True)
    batches = [batch for part in staged.slices() for batch in staged.read(part, on)]
    empty = pa.schema([staged.schema.field(key) for key in on]).empty_table().to_batches()
    rows = pa.Table.from_batches(batches or empty, pa.schema([staged.schema.field(key) for key in on]))
    columns = [_whole(rows.column(key)) for key in on]
    return lookup, KeyTable([key.comparable(values) for key, values in zip(lookup.keys, columns, strict=True)])


def _within(part: Part, fragments: BitMap, snapshot: Snapshot) -> Iterator[Part]:
    kept = tuple(fragment for fragment in part.fragments if fragment in fragments)
    if kept == part.fragments:
        yield part
    elif kept:
        yield Part(kept, snapshot.manifest.rows_in(BitMap(kept)))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
