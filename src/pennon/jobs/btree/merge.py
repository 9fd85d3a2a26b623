"""Merge B-tree segments: cut all of them at the same borders -> merge each range -> join lookups.

Segments are sorted already, so nothing is exchanged: the task of a range reads its stretch of every segment. A range
that is exactly one existing page file is copied if that is allowed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.index_metadata import IndexFile, IndexSegment, segment_directory
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot
from pennon.index.btree.guard_rows import GUARD_ROWS, guard
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import PLAIN_PAGE_FILE, PageFile, PageStats, page_file_name, write_lookup
from pennon.index.btree.pages import Run, merge_runs, write_pages
from pennon.index.btree.row_sequence import Stretch
from pennon.index.btree.segment_uuid import segment_uuid
from pennon.jobs.btree.plan_merge import BTreeMerge, MergeRange, open_sequence
from pennon.jobs.shared.cleanup import delete_on_failure


@dataclass(frozen=True)
class _Merged:
    """The report of a task: the number of rows kept from the sources, and their file, if there are any."""

    kept: int
    part: PageStats | None


def merge_btree(engine: Engine, snapshot: Snapshot, plan: BTreeMerge) -> IndexSegment:
    """Write the files of the merged segment; the caller commits it in place of its sources."""
    # A task needs only its own range.
    common = replace(plan, ranges=())
    # The plan counts full pages; fragments of a running compaction do not belong to the table yet.
    rows = sum(snapshot.manifest.rows_in(BitMap(source.coverage)) for source in plan.remap_plan.sources) or plan.rows
    if len(plan.ranges) == 1 and plan.ranges[0].whole is None:
        [(uuid, merged)] = engine.map("merge", partial(_merge_whole, common), plan.ranges, rows=rows)
        with delete_on_failure(snapshot.store, uuid):
            return _finish(snapshot, plan, uuid, [merged])
    uuid = segment_uuid(plan.remap_plan.coverage)
    with delete_on_failure(snapshot.store, uuid):
        tasks = list(enumerate(plan.ranges))
        merged = engine.map("merge", partial(_merge_range, common, uuid), tasks, rows=rows) if tasks else []
        return _finish(snapshot, plan, uuid, merged)


def _merge_whole(plan: BTreeMerge, part: MergeRange) -> tuple[str, _Merged]:
    """The only task of a small merge. Each attempt has its own directory."""
    uuid = segment_uuid(plan.remap_plan.coverage)
    with delete_on_failure(plan.remap_plan.pin.open().store, uuid):
        rows = _Rows(plan, part.stretches)
        written = _write(plan, uuid, PLAIN_PAGE_FILE, 0, iter(rows))
        return uuid, _Merged(rows.kept, written)


def _merge_range(plan: BTreeMerge, uuid: str, numbered: tuple[int, MergeRange]) -> _Merged:
    """One range of all sources, sorted, without rows that no longer exist; under a name unique to this attempt."""
    number, part = numbered
    partition_id = number << 32 | secrets.randbits(32)
    if part.whole is not None:
        copied = _copy(plan, uuid, partition_id, part, *part.whole)
        if copied is not None:
            return copied
    rows = _Rows(plan, part.stretches)
    merged = iter(rows)
    first = next(merged, None)
    if first is None:
        return _Merged(0, None)
    written = _write(plan, uuid, page_file_name(partition_id), partition_id, guard(chain([first], merged)))
    return _Merged(rows.kept, written)


def _copy(
    plan: BTreeMerge, uuid: str, partition_id: int, part: MergeRange, number: int, file: PageFile
) -> _Merged | None:
    """Copy a range that is already a file; None if other sources have rows in it or the file has no guard row."""
    others = {other: stretch for other, stretch in part.stretches.items() if other != number}
    sequence = open_sequence(plan.remap_plan.pin, plan.remap_plan.sources[number].segment, plan.value_type)
    rows = sequence.rows_if_guarded(file)
    if rows is None or _Rows(plan, others).exist():
        return None
    name = page_file_name(partition_id)
    size_bytes = sequence.copy_file(file, f"{segment_directory(uuid)}/{name}")
    pages, lookup = slice(file.first_page, file.first_page + file.pages), sequence.lookup
    null_counts = lookup.null_counts[pages]
    stats = PageStats(
        IndexFile(name, size_bytes),
        partition_id,
        rows + GUARD_ROWS,
        int(null_counts.sum()),
        lookup.mins[pages],
        lookup.maxs[pages],
        null_counts,
        lookup.digests[pages],
    )
    return _Merged(rows, stats)


class _Rows:
    """The rows of some stretches that the new segment keeps, in order; `kept` counts them while they are read."""

    def __init__(self, plan: BTreeMerge, stretches: dict[int, Stretch]) -> None:
        self._plan, self._stretches = plan, stretches
        self.kept = 0

    def exist(self) -> bool:
        """Whether there is any row; reads only up to the first."""
        return any(True for item in self._stretches.items() for _ in self._remapped(*item))

    def __iter__(self) -> Iterator[Run]:
        streams = [self._remapped(*item) for item in self._stretches.items()]
        # The rows of one source are already sorted and need not be held in memory.
        return streams[0] if len(streams) == 1 else merge_runs([run for stream in streams for run in stream])

    def _remapped(self, number: int, stretch: Stretch) -> Iterator[Run]:
        remap_plan = self._plan.remap_plan
        source = remap_plan.sources[number]
        remapper = remap_plan.remapper(source)
        for run in open_sequence(remap_plan.pin, source.segment, self._plan.value_type).read(stretch):
            null_ids, null_kept = remapper.remap(run.null_ids)
            ids, kept = remapper.remap(run.ids)
            if not kept.all():
                run, ids = replace(run, values=run.values.filter(pa.array(kept))), ids[kept]
            remapped = Run(null_ids[null_kept], run.values, ids)
            self.kept += remapped.rows
            if remapped.rows:
                yield remapped


def _write(plan: BTreeMerge, uuid: str, file_name: str, partition_id: int, runs: Iterator[Run]) -> PageStats:
    store = plan.remap_plan.pin.open().store
    return write_pages(
        store,
        segment_directory(uuid),
        file_name,
        partition_id,
        runs,
        plan.value_type,
        plan.batch_size,
        plan.storage_version,
    )


def _finish(snapshot: Snapshot, plan: BTreeMerge, uuid: str, merged: Sequence[_Merged]) -> IndexSegment:
    """Check the reports of the tasks, join the lookups, and describe the segment."""
    parts = [done.part for done in merged if done.part is not None]
    if not parts:
        parts = [_write(plan, uuid, PLAIN_PAGE_FILE, 0, iter(()))]
    guards = sum(GUARD_ROWS for part in parts if part.file.path != PLAIN_PAGE_FILE)
    written, kept = sum(part.rows for part in parts) - guards, sum(done.kept for done in merged)
    if written != kept:
        raise BuildFailed(
            f"the tasks wrote {written:,} of the {kept:,} rows of the segments of index {plan.name!r} of"
            f" {snapshot.uri}",
            "Nothing was committed; report this",
        )
    lookup = write_lookup(
        snapshot.store, segment_directory(uuid), plan.value_type, parts, plan.batch_size, plan.storage_version
    )
    contents = write_contents(snapshot.store, uuid, plan.remap_plan.coverage, snapshot.manifest.next_row_id)
    return IndexSegment(
        uuid=uuid,
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.remap_plan.pin.version,
        fragments=FrozenBitMap(plan.remap_plan.coverage),
        type_url=BTREE.type_url,
        details=b"",
        index_version=plan.index_version,
        files=(*(part.file for part in parts), lookup, contents),
        created_at=datetime.now(UTC),
    )
