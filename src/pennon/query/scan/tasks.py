"""A scan cut into parts that tasks read independently: rows found by indices, or whole fragments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa
from pyroaring import BitMap

from pennon.format.row_set import RowSet, bitmap_of
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.scan.execute import TAKE_LIMIT, filter_errors, parse, prepared
from pennon.query.scan.part_size import rows_of_parts
from pennon.query.scan.planner import Answer, Planner
from pennon.query.scan.request import ScanRequest

# A row fetched by its address costs about as much as this many rows of a scan.
TAKE_COST = 16
# The maximum bytes of row sets in all parts together, and of runs of rows that the planning process searches for.
# Beyond that, each task searches the indices for its own fragments.
SENT_BYTES = 800_000
SEARCHED_RUNS = 4_000_000
# Every such task reads the same pages of the index, so they are few and large.
SEARCHING_PARTS = 8


@dataclass(frozen=True, eq=False)
class Part:
    """The rows that one task reads, and their number: rows found by indices, all rows of some fragments, or a `piece`
    of a large one. With `lookup` the task searches the indices for the rows of its fragments. `exact` rows need no
    check."""

    fragments: tuple[int, ...]
    rows: int
    found: RowSet | None = None
    exact: bool = False
    lookup: bool = False
    piece: bool = False

    def __str__(self) -> str:
        if self.piece:
            return f"{self.rows:,} rows of a piece of fragment {self.fragments[0]}"
        where = f"{len(self.fragments)} fragment{'' if len(self.fragments) == 1 else 's'}"
        if self.found is not None:
            return f"{self.rows:,} rows by address in {where}"
        return f"at most {self.rows:,} rows by lookup in {where}" if self.lookup else f"{self.rows:,} rows of {where}"


def plan_parts(catalog: Catalog, request: ScanRequest, rows_per_part: int | None = None) -> list[Part]:
    """The parts of a scan: first the rows found by indices, then the fragments to scan. Parts have at least one row.
    By default they have as many as fit some number of bytes."""
    snapshot = catalog.snapshot
    rows, uncut = rows_of_parts(snapshot, request.columns, rows_per_part)
    request = prepared(snapshot, request)
    if request.filter is None:
        return _grouped(snapshot, snapshot.manifest.live, rows, uncut)
    planner = Planner(catalog, parse(snapshot, request.filter))
    answer = planner.answer(search=False)
    many = answer.expected.row_runs > SEARCHED_RUNS
    if not many:
        answer = planner.answer()
        many = answer.indexed.rows.nbytes > SENT_BYTES
    scanned = _grouped(snapshot, answer.scanned, rows, uncut)
    if many:
        return _grouped(snapshot, answer.indexed.fragments, SEARCHING_PARTS * rows, lookup=True) + scanned
    return [*_found(answer, rows), *scanned]


def read_part(pin: Pin, part: Part, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """The rows of a part, lazily."""
    snapshot = pin.open()
    request = prepared(snapshot, request)
    if part.lookup and request.filter is not None:
        for smaller in _looked_up(pin, part, request.filter):
            yield from _read(snapshot, smaller, request)
    else:
        yield from _read(snapshot, part, request)


def _read(snapshot: Snapshot, part: Part, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    found, columns = part.found, request.columns
    if found is not None and _few(found, part, request):
        yield from snapshot.take(found.addresses(), None if columns is None else list(columns)).to_batches()
        return
    rows = dict.fromkeys(part.fragments) if found is None else found.by_fragment
    options = request.options(checked=part.exact)
    with filter_errors(request.filter, request.expressions):
        scanner = snapshot.scanner(rows, with_row_address=request.with_row_address, **options)
        yield from scanner.to_batches()


def _few(found: RowSet, part: Part, request: ScanRequest) -> bool:
    return part.exact and len(found) <= TAKE_LIMIT and request.is_plain


def _found(answer: Answer, rows_per_part: int) -> Iterator[Part]:
    """Parts have fewer rows if each row is fetched by address than if they are read sequentially."""
    indexed = answer.indexed
    rows = max(1, len(indexed.rows))
    runs = min(rows, answer.expected.row_runs)
    cost = (rows + (TAKE_COST - 1) * runs) / rows
    for piece in indexed.rows.pieces(max(1, int(rows_per_part / cost))):
        yield Part(tuple(piece.fragments), len(piece), piece, exact=indexed.exact)


def _grouped(
    snapshot: Snapshot, fragments: Iterable[int], rows_per_part: int, uncut: int | None = None, *, lookup: bool = False
) -> list[Part]:
    """Group neighboring fragments up to a number of rows, and cut those with more rows than `uncut`."""
    parts: list[Part] = []
    chosen: list[int] = []
    rows = 0
    for fragment in fragments:
        more = snapshot.manifest.fragments[fragment].live_rows
        if chosen and rows + more > rows_per_part:
            parts.append(Part(tuple(chosen), rows, lookup=lookup))
            chosen, rows = [], 0
        if uncut is not None and more > uncut:
            parts += _pieces(snapshot, fragment, -(-more // rows_per_part))
            continue
        chosen.append(fragment)
        rows += more
    return [*parts, Part(tuple(chosen), rows, lookup=lookup)] if chosen else parts


def _pieces(snapshot: Snapshot, fragment: int, count: int) -> Iterator[Part]:
    """The live rows of a fragment in about equal pieces."""
    rows = snapshot.manifest.fragments[fragment].physical_rows
    deleted = bitmap_of(snapshot.deleted_offsets(fragment))
    for start, stop in pairwise(rows * number // count for number in range(count + 1)):
        live = BitMap(range(start, stop)) - deleted
        if live:
            live.run_optimize()
            yield Part((fragment,), len(live), RowSet({fragment: live}), piece=True)


def _looked_up(pin: Pin, part: Part, sql: str) -> Iterator[Part]:
    """The answer for the whole table, restricted to the part's fragments: in any plan, every fragment is either
    answered by indices or scanned."""
    answer = _answer(pin, sql)
    own = BitMap(part.fragments)
    found = answer.indexed.rows.within(own)
    if len(found):
        yield Part(part.fragments, len(found), found, exact=answer.indexed.exact)
    scanned = answer.scanned & own
    if scanned:
        yield Part(tuple(scanned), pin.open().manifest.rows_in(scanned))


@lru_cache(maxsize=1)
def _answer(pin: Pin, sql: str) -> Answer:
    """Cached for consecutive tasks of one worker process."""
    catalog = Catalog.read(pin.open(), SHARED_CACHE)
    return Planner(catalog, parse(catalog.snapshot, sql)).answer()
