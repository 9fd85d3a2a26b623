"""Merge n-gram segments: the posting lists of a range of tokens from all of them, with current ids -> one file.

If no id changes, bitmaps of different fragments are joined unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.engine.spill import buffered
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.ngram.files import PostingsFile
from pennon.index.ngram.folding import TOKEN_LIMIT
from pennon.index.ngram.postings import DamagedPostings, Postings
from pennon.jobs.ngram.files import Part, Written, describe_segment, join_parts, write_part, write_whole
from pennon.jobs.ngram.plan import COLLECTED_SHARE, NGramMerge
from pennon.jobs.ngram.ranges import ranges_of
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory
from pennon.jobs.shared.remap import MergeSource

# Ids that are decoded and remapped at once; each takes about 40 bytes of memory.
MOST_IDS = 1 << 21


def merge_ngram(engine: Engine, snapshot: Snapshot, plan: NGramMerge) -> IndexSegment:
    """Write the files of the merged segment; the caller commits it in place of its sources."""
    pin, sources = plan.remap_plan.pin, [source.segment for source in plan.remap_plan.sources]
    if plan.ranges == 1:
        [written] = engine.map("merge", _merge_all, [plan], rows=plan.rows)
    else:
        tokens = np.concatenate([PostingsFile(snapshot.store, source).read_tokens() for source in sources])
        ranges = list(ranges_of(tokens, plan.ranges))
        with scratch_directory(snapshot.store) as scratch:
            parts = engine.map("merge", partial(_merge_range, plan, scratch), ranges, rows=plan.rows)
            written = join_parts(engine, pin, parts, plan.storage_version)
    with delete_on_failure(snapshot.store, written.uuid):
        return describe_segment(snapshot, written, plan.name, plan.field_id, plan.remap_plan.coverage)


def _merge_all(plan: NGramMerge) -> Written:
    """Task: all posting lists."""
    return write_whole(plan.remap_plan.pin, _kept(plan, 0, TOKEN_LIMIT), plan.storage_version)


def _merge_range(plan: NGramMerge, scratch: str, tokens: tuple[int, int]) -> Part:
    """Task: the posting lists of a range of tokens."""
    return write_part(plan.remap_plan.pin, scratch, _kept(plan, *tokens), plan.storage_version)


def _kept(plan: NGramMerge, low: int, high: int) -> Iterator[Postings]:
    """The postings that the new segment keeps from its sources, in memory or mapped from a file."""
    return map(Postings.of_batch, buffered(_batches(plan, low, high), int(plan.memory_bytes * COLLECTED_SHARE)))


def _batches(plan: NGramMerge, low: int, high: int) -> Iterator[pa.RecordBatch]:
    store = plan.remap_plan.pin.open().store
    for source in plan.remap_plan.sources:
        file = PostingsFile(store, source.segment)
        start, stop = np.searchsorted(file.read_tokens(), np.array([low, high], dtype=np.uint32)).tolist()
        for postings in file.postings(start, stop):
            try:
                yield from _remapped(plan, source, postings)
            except DamagedPostings:
                raise file.damaged() from None


def _remapped(plan: NGramMerge, source: MergeSource, postings: Postings) -> Iterator[pa.RecordBatch]:
    """The rows of a source that the new segment keeps, under their new ids."""
    if plan.ids_unchanged:
        yield postings.to_batch()
        return
    remapper = plan.remap_plan.remapper(source)
    for part in postings.cut(MOST_IDS):
        tokens, ids = part.ids()
        ids, kept = remapper.remap(ids)
        if kept.any():
            yield Postings.of_ids(tokens[kept], ids[kept]).to_batch()
