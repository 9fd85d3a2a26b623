"""Build an n-gram segment: tokens of rows -> posting lists by fragment -> exchange by token -> one file in order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import pyarrow as pa

from pennon.engine import Engine
from pennon.engine.spill import buffered
from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.index.ngram.postings import Postings
from pennon.index.ngram.tokens import collect_postings, token_sets
from pennon.jobs.ngram.files import Part, Written, describe_segment, join_parts, write_part, write_whole
from pennon.jobs.ngram.plan import SAMPLE_ROWS, NGramPlan
from pennon.jobs.ngram.ranges import TokenRanges, ranges_of
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory


def build_ngram(engine: Engine, snapshot: Snapshot, plan: NGramPlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    if plan.single_task:
        [(rows, written)] = engine.map("build", partial(_build_whole, plan), plan.slices, rows=plan.rows)
        return _finish(snapshot, plan, rows, written)
    ranges = ranges_of(token_sets(_sample(snapshot, plan))[0], plan.ranges)
    send = partial(_send_slice, plan, ranges)
    if ranges.count == 1:
        exchanged = engine.exchange("build", send, plan.slices, partial(_write_all, plan), 1, rows=plan.rows)
        written = exchanged.reduced.get(0) or write_whole(plan.pin, (), plan.storage_version)
        return _finish(snapshot, plan, sum(exchanged.mapped), written)
    with scratch_directory(snapshot.store) as scratch:
        write = partial(_write_range, plan, scratch)
        exchanged = engine.exchange("build", send, plan.slices, write, ranges.count, rows=plan.rows)
        parts = [part for _, part in sorted(exchanged.reduced.items())]
        written = join_parts(engine, plan.pin, parts, plan.storage_version)
    return _finish(snapshot, plan, sum(exchanged.mapped), written)


def _build_whole(plan: NGramPlan, part: ScanSlice) -> tuple[int, Written]:
    """The only task of a small build."""
    read = _Scan(plan, part)
    written = write_whole(plan.pin, collect_postings(read, plan.collected_bytes), plan.storage_version)
    return read.rows, written


def _send_slice(
    plan: NGramPlan, ranges: TokenRanges, part: ScanSlice
) -> Generator[tuple[int, pa.RecordBatch], None, int]:
    """Map task: the postings of a slice, cut at the borders of the ranges."""
    read = _Scan(plan, part)
    for postings in collect_postings(read, plan.collected_bytes):
        for number, piece in ranges.cut(postings):
            yield number, piece.to_batch()
    return read.rows


def _write_all(plan: NGramPlan, _: int, batches: Iterator[pa.RecordBatch]) -> Written:
    """Reduce task: all posting lists."""
    return write_whole(plan.pin, _received(plan, batches), plan.storage_version)


def _write_range(plan: NGramPlan, scratch: str, _: int, batches: Iterator[pa.RecordBatch]) -> Part:
    """Reduce task: the posting lists of a range of tokens."""
    return write_part(plan.pin, scratch, _received(plan, batches), plan.storage_version)


def _received(plan: NGramPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[Postings]:
    """The received postings, in memory or mapped from a file."""
    return map(Postings.of_batch, buffered(batches, plan.collected_bytes))


class _Scan:
    """Texts of a slice with their ids, batch by batch, and the number of rows read."""

    def __init__(self, plan: NGramPlan, part: ScanSlice) -> None:
        self._plan, self._part = plan, part
        self.rows = 0

    def __iter__(self) -> Iterator[tuple[pa.Array, Addresses]]:
        snapshot = self._plan.pin.open()
        for texts, addresses in snapshot.scan_column(snapshot.column(self._plan.column), self._part):
            self.rows += len(texts)
            yield texts, ids_of(addresses, snapshot.row_ids) if self._plan.stable_row_ids else addresses


def _sample(snapshot: Snapshot, plan: NGramPlan) -> pa.Array:
    return snapshot.sample_column(snapshot.column(plan.column), plan.fragments, SAMPLE_ROWS, seed=plan.pin.version)


def _finish(snapshot: Snapshot, plan: NGramPlan, rows: int, written: Written) -> IndexSegment:
    """Check the reports of the tasks, and describe the segment."""
    with delete_on_failure(snapshot.store, written.uuid):
        if rows != plan.rows:
            raise BuildFailed(
                f"the tasks indexed {rows:,} of the {plan.rows:,} rows of {plan.pin.location.uri}",
                "Nothing was committed; report this",
            )
        return describe_segment(snapshot, written, plan.name, plan.field_id, plan.fragments)
