"""Merge a source into a table by key.

stage the source -> refuse repeated keys -> match and write, by ranges of keys -> commit. The source is evaluated once.
If another writer changes rows of the same keys before the commit, the staged rows are matched again.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyroaring import BitMap

from pennon.engine import Engine
from pennon.format.new_rows import refuse_blobs
from pennon.format.row_changes import NewFragment, commit_inserted_rows, commit_moved_rows
from pennon.format.snapshot import Snapshot
from pennon.jobs.merge.apply import Merged, MergeWork, merge_range
from pennon.jobs.merge.clauses import Clauses
from pennon.jobs.merge.dealing import choose_ranges
from pennon.jobs.merge.duplicates import refuse_duplicates
from pennon.jobs.merge.effort import merge_effort
from pennon.jobs.merge.match import Matching, MergeTask, plan_matching, send_rows, target_parts
from pennon.jobs.merge.recheck import KeyCheck
from pennon.jobs.merge.schema import MergeSchema, check_schema
from pennon.jobs.merge.source import Staged, arrow_source, source_schema, stage_source
from pennon.jobs.rows.change import RowChange, commit_rows, repeated
from pennon.jobs.rows.find import add_rows, opened
from pennon.jobs.rows.plan import RowsPlan
from pennon.jobs.rows.written import deleting_recorded
from pennon.jobs.shared.cleanup import scratch_directory
from pennon.query.scan.part_size import ROWS_PER_PART
from pennon.wording import plural

# Bytes of the source, and of keys of the table, in one range: a task holds them.
RANGE_BYTES = 64 << 20
# Bytes of a key and an address, about.
KEY_BYTES = 32
# A commit with new keys must be the next version, so that it conflicts with every other commit.
ATTEMPTS = 40


class _Outcome(NamedTuple):
    engine: Engine
    merged: list[Merged]
    gone: dict[int, BitMap]
    plan: RowsPlan

    @property
    def fragments(self) -> tuple[NewFragment, ...]:
        return tuple(fragment for part in self.merged for fragment in part.fragments)


@dataclass(frozen=True)
class _Merge:
    """A merge of a staged source."""

    engine: Engine
    clauses: Clauses
    given: pa.Schema
    staged: Staged
    directory: str

    def run(self, snapshot: Snapshot) -> tuple[Snapshot, RowsPlan, int]:
        done = self.match(snapshot, write=True)
        if not done.plan.rows:
            return snapshot, done.plan, 0
        counts = {
            "deleted": done.plan.rows_deleted,
            "updated": done.plan.rows_updated,
            "inserted": done.plan.rows_inserted,
            "fragments": len(done.gone),
        }
        what = f"merge {plural(self.staged.rows, 'row')} by {', '.join(self.clauses.on)}"
        change = RowChange(snapshot, done.gone, done.fragments, what, counts)
        if done.plan.rows_inserted:
            check = KeyCheck(done.engine, snapshot, self.staged, self.clauses.on)
            newest = commit_rows(
                done.engine,
                change,
                lambda base, gone: commit_inserted_rows(base, gone, done.fragments),
                check,
                ATTEMPTS,
            )
        else:
            newest = commit_rows(done.engine, change, lambda base, gone: commit_moved_rows(base, gone, done.fragments))
        return newest, done.plan, sum(fragment.size_bytes for fragment in done.fragments)

    def match(self, snapshot: Snapshot, *, write: bool) -> _Outcome:
        """Match the source with a version, and write the rows that come of it, or only count them."""
        schema = check_schema(snapshot, self.given, self.clauses)
        matching = plan_matching(snapshot, self.clauses, self.staged.rows)
        effort = merge_effort(snapshot, self.staged, matching, schema)
        engine = self.engine.in_process if effort.in_process else self.engine
        parts = target_parts(snapshot, self.clauses, matching, _rows_per_part(engine, matching))
        keys_read = sum(part.part.rows for part in parts)
        ranges = choose_ranges(self.staged, self.clauses.on, self._destinations(engine, keys_read))
        directory = self.directory if write else None
        work = MergeWork(snapshot.pin(), self.clauses, schema, matching, directory)
        send = partial(send_rows, work.pin, self.staged, self.clauses.on, ranges)
        tasks: list[MergeTask] = [*self.staged.slices(), *parts]
        rows = self.staged.rows + keys_read
        with deleting_recorded(snapshot, self.directory):
            exchanged = engine.exchange("merge", send, tasks, partial(merge_range, work), ranges.count, rows=rows)
        merged = list(exchanged.reduced.values())
        gone: dict[int, BitMap] = {}
        for part in merged:
            add_rows(gone, opened(part.gone))
        plan = RowsPlan(
            sum(part.deleted for part in merged),
            sum(part.updated for part in merged),
            sum(part.inserted for part in merged),
            tuple(sorted(gone)),
            tuple(matching.lines(self.staged.rows, here=effort.in_process)),
        )
        return _Outcome(engine, merged, gone, plan)

    def _destinations(self, engine: Engine, keys_read: int) -> int:
        """Ranges that fit the memory of a task; as many as run at once, if there is enough to do for them."""
        held = self.staged.nbytes + KEY_BYTES * keys_read
        least = -(-held // RANGE_BYTES)
        return max(1, least, min(engine.parallelism, held // (1 << 20)) if held >> 20 else 1)


def merge_rows(engine: Engine, snapshot: Snapshot, source: object, clauses: Clauses) -> tuple[Snapshot, RowsPlan, int]:
    """Merge a source. Returns the new version, what was done, and the bytes written.

    Raises:
        InvalidArgument: the source has a key twice, or a column or value that does not fit; nothing was written.
        CommitConflict: other writers kept changing rows of the same keys; nothing was committed.
    """
    with _staged(engine, snapshot, source, clauses) as merge:
        return repeated(snapshot, merge.run)


def plan_merge(engine: Engine, snapshot: Snapshot, source: object, clauses: Clauses) -> RowsPlan:
    """What `merge_rows` would do. The source is evaluated, and nothing of the table is changed."""
    with _staged(engine, snapshot, source, clauses) as merge:
        return merge.match(snapshot, write=False).plan


@contextmanager
def _staged(engine: Engine, snapshot: Snapshot, source: object, clauses: Clauses) -> Generator[_Merge]:
    source = arrow_source(source)
    given = source_schema(source)
    schema: MergeSchema = check_schema(snapshot, given, clauses)
    if clauses.updates:
        refuse_blobs(snapshot)
    with scratch_directory(snapshot.store) as directory:
        staged = stage_source(engine, snapshot, source, schema.staged, clauses.on, directory)
        refuse_duplicates(engine, snapshot, staged, clauses.on, -(-staged.nbytes // RANGE_BYTES))
        yield _Merge(engine, clauses, given, staged, directory)


def _rows_per_part(engine: Engine, matching: Matching) -> int:
    return max(ROWS_PER_PART, matching.rows_read // (4 * engine.parallelism)) if matching.rows_read else ROWS_PER_PART
