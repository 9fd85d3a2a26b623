"""Plan an inverted index: rows, tasks, memory; nothing is written yet.

Every task makes partitions of its own rows, so that nothing is exchanged. A query looks into every partition: tasks are
as large as memory allows, and a small table is one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pennon.display import Displayed
from pennon.errors import UnsupportedColumn
from pennon.format.fragments import Fragment
from pennon.format.rows import SCAN_BATCH, ScanSlice
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.inverted.analysis.column_types import document_kind
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.kind import INDEX_VERSION, INVERTED
from pennon.jobs.shared.arguments import check_at_least_one
from pennon.jobs.shared.placement import Effort, Placed
from pennon.jobs.shared.plan_display import build_fields, build_text, line
from pennon.jobs.shared.tasks import chosen_fragments, cut_slices, whole_waves
from pennon.wording import plural

# Batches of the column that are alive at once while a task reads: read ahead, and the one being analyzed.
BATCHES = 8
# Rows whose size is measured, and the most bytes of them: they may be long.
MEASURED_ROWS, MEASURED_BYTES = 1000, 32 << 20
# Less text than this is not worth a task, nor a partition.
LEAST_TASK_TEXT = 32 << 20
# What a task holds for a byte of text: tokens and postings of words, or those of n-grams, which start at every byte.
WORD_BYTES, NGRAM_BYTES = 4, 16
# Of the memory of a task, what a partition may take before it is written; the rest is for batches and for writing.
PARTITION_SHARE = 0.625
# Of the memory of a task, the index files that it merges: dictionaries and documents are held, and lists that pylance
# wrote in an order of its own.
MERGED_SHARE = 0.25
# Index files for a byte of text.
FILE_SHARE, POSITION_SHARE = 0.35, 0.35


@dataclass(frozen=True)
class Target:
    """The segment to write, and how its column is read. Travels with every task."""

    pin: Pin
    name: str
    column: str
    field_id: int
    value_type: pa.DataType
    params: TextParams
    index_version: int
    stable_row_ids: bool
    value_bytes: int
    batch_rows: int
    memory_bytes: int
    partition_bytes: int
    joined_bytes: int  # of files, up to which small partitions become one

    @property
    def bytes_per_byte(self) -> int:
        """Memory that a byte of text takes."""
        if self.params.base_tokenizer != "ngram":
            return WORD_BYTES
        return NGRAM_BYTES * (self.params.max_ngram_length - self.params.min_ngram_length + 1)

    @property
    def batch_bytes(self) -> int:
        """Of text that is read at once, regardless of the rows that were measured."""
        return self.memory_bytes // (4 * BATCHES)

    @property
    def longest_text(self) -> int:
        """Bytes of the longest text that fits a task: itself, its tokens and their positions."""
        return self.memory_bytes // (1 + self.bytes_per_byte // 2)

    def file_bytes(self, rows: int) -> int:
        share = FILE_SHARE + (POSITION_SHARE if self.params.with_position else 0)
        return int(rows * (12 + self.value_bytes * share * self.bytes_per_byte / WORD_BYTES))


@dataclass(frozen=True)
class InvertedPlan(Displayed, Placed):
    """What a build will do, known before it does anything."""

    target: Target
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    slices: tuple[ScanSlice, ...] = field(repr=False)

    @property
    def pin(self) -> Pin:
        return self.target.pin

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def field_id(self) -> int:
        return self.target.field_id

    @property
    def tasks(self) -> int:
        return len(self.slices)

    @property
    def index_bytes(self) -> int:
        return self.target.file_bytes(self.rows)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, 24 * self.rows * self.target.value_bytes)

    @property
    def task_memory_bytes(self) -> int:
        target = self.target
        text = self.rows * target.value_bytes // max(1, self.tasks)
        read = BATCHES * min(target.batch_rows, self.rows) * target.value_bytes
        return min(text * target.bytes_per_byte, target.partition_bytes) + read

    def to_dict(self) -> dict[str, object]:
        return build_fields(self, INVERTED.names[0], self.target.column)

    def __str__(self) -> str:
        target = self.target
        heading = f"{INVERTED.names[0]} {self.name!r} on {target.column} ({target.value_type})"
        positions = ", with positions" if target.params.with_position else ""
        terms = line("terms", f"{target.params.base_tokenizer}, {target.params.language}{positions}")
        rows, files = f", about {target.value_bytes:,} bytes a row", ", a partition for each task, small ones joined"
        return build_text(self, heading, plural(self.tasks, "task"), terms, rows=rows, files=files)


def plan_inverted(
    snapshot: Snapshot,
    column_path: str,
    params: TextParams,
    *,
    name: str | None = None,
    fragment_ids: Sequence[int] | None = None,
    parallelism: int = 1,
    memory_bytes: int,
    rows_per_task: int | None = None,
    index_version: int = INDEX_VERSION,
) -> InvertedPlan:
    check_at_least_one(rows_per_task=rows_per_task)
    column = _text_column(snapshot, column_path)
    fragments = chosen_fragments(snapshot, fragment_ids)
    values = snapshot.sample_column(column, [f.id for f in fragments], MEASURED_ROWS, 0, MEASURED_BYTES)
    value_bytes = max(8, values.nbytes // max(1, len(values)))
    params = replace(params, lance_tokenizer=document_kind(column.type))
    target = Target(
        pin=snapshot.pin(),
        name=name or f"{column_path}_idx",
        column=column.path,
        field_id=column.field_id,
        value_type=column.type,
        params=params,
        index_version=index_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        value_bytes=value_bytes,
        batch_rows=max(1, min(SCAN_BATCH, memory_bytes // (4 * BATCHES * value_bytes))),
        memory_bytes=memory_bytes,
        partition_bytes=int(memory_bytes * PARTITION_SHARE),
        joined_bytes=int(memory_bytes * MERGED_SHARE),
    )
    slices = _slices(target, fragments, parallelism, rows_per_task)
    return InvertedPlan(target, tuple(f.id for f in fragments), sum(f.live_rows for f in fragments), slices)


def _text_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not INVERTED.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, on which there is no {INVERTED.names[0]} index",
            f"Types that can have one: {INVERTED.types}",
        )
    return column


def _slices(
    target: Target, fragments: Sequence[Fragment], parallelism: int, rows_per_task: int | None
) -> tuple[ScanSlice, ...]:
    filled = [fragment for fragment in fragments if fragment.live_rows]
    rows = sum(fragment.live_rows for fragment in filled)
    if not filled:
        return ()
    if rows_per_task is not None:
        tasks = -(-rows // rows_per_task)
    else:
        text = rows * target.value_bytes
        needed = -(-text * target.bytes_per_byte // target.partition_bytes)
        tasks = max(needed, min(parallelism, text // LEAST_TASK_TEXT))
        tasks = whole_waves(tasks, parallelism) if tasks > parallelism else max(1, tasks)
    return tuple(cut_slices(filled, tasks)) if tasks > 1 else (ScanSlice(tuple(f.id for f in filled)),)
