"""The tasks that find near-duplicates, and the messages between them.

    rows     address, two hashes of the vector, home cell, sketch; place 0 to the group of the home cell, place 1 to
             other groups with cells that compare the row with theirs
    forest   a row, and the first row of its group

Rows with equal vectors are compared once, by the first of them: copies are often the most frequent near-duplicates, and
their pairs grow with the square of their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pennon.engine.frames import Batches, Delivered, Message
from pennon.format.addresses import Addresses
from pennon.format.rows import ADDRESS
from pennon.index.threads import one_thread
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors, Words, to_lists, to_matrix
from pennon.jobs.near_duplicates.cells import COMPARED_ROWS, Candidates, Cell, Cells, Compared, compare
from pennon.jobs.near_duplicates.forest import Forest
from pennon.jobs.near_duplicates.measure import Measure
from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan
from pennon.jobs.near_duplicates.sketch import Doubles, hashes
from pennon.jobs.shared.frame_join import blocks
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, read_part

HOME, GUEST = 0, 1
# Pairs that are measured together, and returned together.
MEASURED_PAIRS, RETURNED_PAIRS = 1 << 18, 1 << 16


class Found(NamedTuple):
    """Pairs within the distance, as places in two sets of rows. Without candidates: the copies among the first."""

    first: Copies
    second: Copies
    candidates: Candidates | None
    distances: Floats


class Pairs(NamedTuple):
    """Addresses of rows that are near-duplicates, the lower one first, and their distances."""

    first: Addresses
    second: Addresses
    distances: Floats


@dataclass(frozen=True, eq=False)
class Copies:
    """Rows of one home cell and one vector count as one, the first; sorted by cell, and from the rim of the cell to its
    centroid. `members` are all rows, with copies together in `runs`, which are in another order."""

    addresses: Addresses  # of the first of each
    compared: Compared
    home: Cell
    depths: Doubles  # descending in each cell
    starts: Positions  # of the run of each
    counts: Positions
    members: Addresses
    runs: Positions

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch], cells: Cells) -> Copies:
        rows = pa.Table.from_batches(batches).combine_chunks()
        addresses: Addresses = rows["address"].to_numpy()
        home: Cell = rows["home"].to_numpy()
        words = [rows[name].to_numpy() for name in ("hash", "second hash")]
        order = np.lexsort((addresses, *words, home))
        changes = np.zeros(max(0, len(order) - 1), dtype=np.bool_)
        for values in (home, *words):
            changes |= np.diff(values[order].view(f"i{values.itemsize}")) != 0
        runs = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(order)]])
        first = order[runs[:-1]]
        sketches = rows["sketch"].chunk(0).flatten().to_numpy().reshape(-1, cells.sketch.width)[first]
        depths = cells.depths(sketches, home[first])
        sorted_ = np.lexsort((-depths, home[first]))
        first = first[sorted_]
        return cls(
            addresses[first],
            Compared.of(sketches[sorted_]),
            home[first],
            depths[sorted_],
            runs[:-1][sorted_],
            np.diff(runs)[sorted_],
            addresses[order],
            runs,
        )

    def of_cell(self, cell: int) -> slice:
        """Where the rows of a cell are: rows are sorted by it."""
        return slice(*np.searchsorted(self.home, [cell, cell + 1]).tolist())


def route(plan: NearDuplicatesPlan, _: int, numbers: Batches) -> Iterator[Message]:
    """Task: the rows of a part to the groups that compare them."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            if number < len(plan.parts):
                with one_thread():
                    yield from _route(plan, plan.parts[number])


def find_pairs(plan: NearDuplicatesPlan, delivered: Iterator[Delivered]) -> Iterator[Pairs]:
    """Task: the pairs of one group of cells."""
    for found in _measured(plan, delivered):
        yield from _expanded(found)


def find_forest(plan: NearDuplicatesPlan, group: int, delivered: Iterator[Delivered]) -> Iterator[Message]:
    """Task: the rows that the pairs of one group of cells connect."""
    forest = Forest()
    for first, second, candidates, _ in _measured(plan, delivered):
        if candidates is None:
            forest.connect(np.repeat(first.members[first.runs[:-1]], np.diff(first.runs)), first.members)
        else:
            forest.connect(first.addresses[candidates.first], second.addresses[candidates.second])
    yield from _sent(forest, group % plan.mergers, group)


def merge_forests(_: NearDuplicatesPlan, number: int, delivered: Iterator[Delivered]) -> Iterator[Message]:
    """Task: one forest of several."""
    yield from _sent(_received(delivered), 0, number)


def deal_groups(plan: NearDuplicatesPlan, _: int, delivered: Iterator[Delivered]) -> Iterator[Message]:
    """Task: the groups of all rows, to the tasks that return them."""
    rows, firsts, sizes = _received(delivered).groups()
    step = max(1, -(-len(rows) // plan.finishers))
    for number, start in enumerate(range(0, len(rows), step)):
        some = slice(start, start + step)
        columns = {"row": rows[some], "first": firsts[some], "size": sizes[some]}
        yield number, 0, pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def _route(plan: NearDuplicatesPlan, part: Part) -> Iterator[Message]:
    cells = plan.cells
    for vectors, addresses in _read(plan, part):
        sketches, words = cells.sketch.of(vectors), hashes(vectors)
        home = cells.home(sketches)
        own = cells.group_of(home)
        reached = np.empty((len(home), len(cells.starts)), dtype=np.bool_)
        for start in range(0, len(home), COMPARED_ROWS):
            some = slice(start, start + COMPARED_ROWS)
            visits = cells.visits(sketches[some], home[some])
            reached[some] = np.logical_or.reduceat(visits, cells.starts, axis=1)
        for group in range(len(cells.starts)):
            at_home = own == group
            for place, chosen in ((HOME, at_home), (GUEST, reached[:, group] & ~at_home)):
                if chosen.any():
                    yield group, place, _message(addresses, words, home, sketches, chosen)


def _read(plan: NearDuplicatesPlan, part: Part) -> Iterator[tuple[Vectors, Addresses]]:
    """Vectors that have distances, and their addresses, in blocks."""
    request = ScanRequest(plan.filter, (plan.column,), with_row_address=True, batch_size=plan.read_rows)
    waiting: list[tuple[Vectors, Addresses]] = []
    for batch in read_part(plan.pin, part, request):
        vectors, whole = to_matrix(_leaf(batch.column(0)))
        kept = np.flatnonzero(whole)[plan.cells.sketch.metric.indexable(vectors[whole])]
        waiting.append((vectors[kept], batch.column(ADDRESS).to_numpy()[kept]))
        if sum(len(addresses) for _, addresses in waiting) >= plan.read_rows:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _leaf(values: pa.Array) -> pa.Array:
    """Of a nested column, which comes in its structs."""
    while pa.types.is_struct(values.type):
        values = values.flatten()[0]
    return values


def _joined(blocks: list[tuple[Vectors, Addresses]]) -> tuple[Vectors, Addresses]:
    return np.concatenate([vectors for vectors, _ in blocks]), np.concatenate([rows for _, rows in blocks])


def _message(addresses: Addresses, words: Words, home: Cell, sketches: Floats, chosen: Mask) -> pa.RecordBatch:
    hashed = [pa.array(np.ascontiguousarray(words[chosen, number])) for number in range(words.shape[1])]
    columns = [pa.array(addresses[chosen]), *hashed, pa.array(home[chosen]), to_lists(sketches[chosen])]
    return pa.record_batch(columns, names=["address", "hash", "second hash", "home", "sketch"])


def _measured(plan: NearDuplicatesPlan, delivered: Iterator[Delivered]) -> Iterator[Found]:
    """What one group of cells finds, among its own rows and with those of others."""
    cells, measure = plan.cells, plan.measure()
    own: Copies | None = None
    with one_thread():
        for place, messages in groupby(delivered, lambda message: message[0]):
            batches = (batch for _, batch in messages)
            if place == HOME:
                own = Copies.of(list(batches), cells)
                yield Found(own, own, None, np.zeros(0, dtype=np.float32))
                yield from _within(measure, own, own, _among(cells, own))
            elif own is None:
                deque(batches, maxlen=0)  # a worker that leaves input unread cannot be reused
            else:
                for some in blocks(batches, COMPARED_ROWS):
                    guests = Copies.of([some], cells)
                    yield from _within(measure, guests, own, _visiting(cells, guests, slice(0, None), own))


def _among(cells: Cells, own: Copies) -> Iterator[Candidates]:
    """Pairs of rows that are at home in one group of cells."""
    for cell in np.unique(own.home).tolist():
        rows = own.of_cell(cell)
        compared, depths = own.compared[rows], own.depths[rows]
        limits = _deeper(depths, cells.least_depths(compared.sketches, depths))
        for first, second in compare(cells, compared, limits=np.maximum.accumulate(limits)):
            yield Candidates(first + rows.start, second + rows.start)
    for start in range(0, len(own.home), COMPARED_ROWS):
        yield from _visiting(cells, own, slice(start, start + COMPARED_ROWS), own)


def _visiting(cells: Cells, rows: Copies, some: slice, own: Copies) -> Iterator[Candidates]:
    """Pairs of some rows with those of other cells that compare them."""
    within = cells.cells_of(int(cells.group_of(own.home[:1])[0]))
    compared, home = rows.compared[some], rows.home[some]
    visits = cells.visits(compared.sketches, home, within)
    for number in np.flatnonzero(visits.any(axis=0)).tolist():
        cell = within.start + number
        theirs, asking = own.of_cell(cell), np.flatnonzero(visits[:, number] & (home != cell))
        if len(asking) and theirs.start < theirs.stop:
            sketches = compared.sketches[asking]
            least = cells.least_depths(sketches, cells.depths(sketches, cell))
            limits = _deeper(own.depths[theirs], least)
            order = np.argsort(limits, kind="stable")
            asking = asking[order]
            for first, second in compare(cells, compared[asking], own.compared[theirs], limits[order]):
                yield Candidates(asking[first] + some.start, second + theirs.start)


def _deeper(depths: Doubles, least: Doubles) -> Positions:
    """How many of some descending depths are at least as large as each of others. All, if squares have overflowed."""
    if not (np.isfinite(depths).all() and np.isfinite(least).all()):
        return np.full(len(least), len(depths))
    return len(depths) - np.searchsorted(depths[::-1], least)


def _within(measure: Measure, first: Copies, second: Copies, candidates: Iterator[Candidates]) -> Iterator[Found]:
    """The candidates that are within the distance, measured many at a time."""
    waiting: list[Candidates] = []
    for found in chain(candidates, [None]):
        if found is not None:
            waiting.append(found)
        if waiting and (found is None or sum(len(some.first) for some in waiting) >= MEASURED_PAIRS):
            a, b = (np.concatenate(sides) for sides in zip(*waiting, strict=True))
            for near, distances in measure.within(first.addresses[a], second.addresses[b]):
                yield Found(first, second, Candidates(a[near], b[near]), distances)
            waiting = []


def _expanded(found: Found) -> Iterator[Pairs]:
    """Every pair of rows, some at a time: those of equal vectors, or those of two vectors and their copies."""
    first, second, candidates, distances = found
    if candidates is None:
        partners = np.repeat(first.runs[1:], np.diff(first.runs)) - np.arange(len(first.members)) - 1
        for member, offset in _unrolled(partners):
            zeros = np.zeros(len(member), dtype=np.float32)
            yield Pairs(first.members[member], first.members[member + 1 + offset], zeros)
        return
    widths = second.counts[candidates.second]
    for pair, offset in _unrolled(first.counts[candidates.first] * widths):
        a = first.members[first.starts[candidates.first[pair]] + offset // widths[pair]]
        b = second.members[second.starts[candidates.second[pair]] + offset % widths[pair]]
        yield Pairs(np.minimum(a, b), np.maximum(a, b), distances[pair])


def _unrolled(counts: Positions) -> Iterator[tuple[Positions, Positions]]:
    """Each item as often as its count, with the numbers from 0 to it."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, RETURNED_PAIRS):
        flat = np.arange(start, min(start + RETURNED_PAIRS, total))
        item = np.searchsorted(ends, flat, side="right")
        yield item, flat - (ends - counts)[item]


def _sent(forest: Forest, destination: int, place: int) -> Iterator[Message]:
    rows, firsts = forest.edges()
    if len(rows):
        yield destination, place, pa.record_batch({"row": pa.array(rows), "first": pa.array(firsts)})


def _received(delivered: Iterator[Delivered]) -> Forest:
    forest = Forest()
    for _, batch in delivered:
        forest.connect(batch.column("first").to_numpy(), batch.column("row").to_numpy())
    return forest
