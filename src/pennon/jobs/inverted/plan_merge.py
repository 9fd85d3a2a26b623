"""Plan the merge of segments of an inverted index: which partitions become one.

One partition is best for queries; it grows up to what a task can merge within its memory, and larger ones stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pennon.errors import UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.files import PartitionFiles, SegmentMetadata
from pennon.index.inverted.kind import INVERTED
from pennon.jobs.inverted.plan import MERGED_SHARE
from pennon.jobs.shared.placement import MERGE_WEIGHT, Effort, Placed
from pennon.jobs.shared.plan_display import merge_fields, merge_text
from pennon.jobs.shared.remap import RemapPlan
from pennon.wording import plural


@dataclass(frozen=True)
class SourcePartition:
    """A partition of one of the segments, the segment by its place among the sources."""

    source: int
    number: int


@dataclass(frozen=True)
class InvertedMerge(Placed):
    """What a merge will do, known before it does anything."""

    name: str
    field_id: int
    params: TextParams
    index_version: int
    stable_row_ids: bool
    remap_plan: RemapPlan = field(repr=False)
    metadata: tuple[SegmentMetadata, ...] = field(repr=False)
    groups: tuple[tuple[SourcePartition, ...], ...] = field(repr=False)
    rows: int
    index_bytes: int
    largest_bytes: int
    delta_rows: int | None = None  # of a segment that is built before the merge

    @property
    def pin(self) -> Pin:
        return self.remap_plan.pin

    @property
    def is_estimate(self) -> bool:
        return self.delta_rows is not None

    @property
    def tasks(self) -> int:
        return len(self.groups)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, MERGE_WEIGHT * self.index_bytes)

    @property
    def task_memory_bytes(self) -> int:
        return int(self.largest_bytes / MERGED_SHARE)

    def to_dict(self) -> dict[str, object]:
        return merge_fields(self, len(self.remap_plan.sources), partitions=len(self.groups))

    def __str__(self) -> str:
        return merge_text(self, f"{self.rows:,} rows in {plural(len(self.groups), 'partition')}")


def plan_inverted_merge(
    snapshot: Snapshot,
    column: Column,
    remap_plan: RemapPlan,
    *,
    like: IndexSegment,
    memory_bytes: int,
    delta_rows: int | None = None,
    delta_bytes: int = 0,
) -> InvertedMerge:
    """May raise DamagedFile, where a source cannot be read, or UnsupportedTable, where they do not fit together."""
    segments = [source.segment for source in remap_plan.sources]
    metadata = tuple(INVERTED.metadata_of(snapshot, segment) for segment in segments)
    params = metadata[segments.index(like)].params
    if any(other.params != params for other in metadata):
        raise UnsupportedTable(
            f"the segments of index {like.name!r} of {snapshot.uri} have different parameters", "Build the index again"
        )
    sizes = [_partition_sizes(snapshot, *known) for known in zip(segments, metadata, strict=True)]
    groups = tuple(_groups(sizes, int(memory_bytes * MERGED_SHARE)))
    weights = [sum(sizes[part.source][part.number] for part in group) for group in groups]
    covered = remap_plan.coverage & snapshot.manifest.live
    for segment in segments:  # fragments of a running compaction are not the table's yet
        covered |= segment.fragments & snapshot.manifest.live
    return InvertedMerge(
        name=like.name,
        field_id=column.field_id,
        params=params,
        index_version=like.index_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        remap_plan=remap_plan,
        metadata=metadata,
        groups=groups,
        rows=snapshot.manifest.rows_in(covered) + (delta_rows or 0),
        index_bytes=sum(weights) + delta_bytes,
        largest_bytes=max(weights, default=0),
        delta_rows=delta_rows,
    )


def _partition_sizes(snapshot: Snapshot, segment: IndexSegment, metadata: SegmentMetadata) -> dict[int, int]:
    """Bytes of each partition, by its number."""
    known = segment.file_sizes

    def size(name: str) -> int:
        return known[name] if name in known else snapshot.store.size(f"{segment.directory}/{name}") or 0

    files = {number: PartitionFiles(snapshot.store, segment.directory, number, known) for number in metadata.partitions}
    return {number: sum(size(name) for name in each.names) for number, each in files.items()}


def _groups(sizes: Sequence[dict[int, int]], most: int) -> Iterator[tuple[SourcePartition, ...]]:
    """Partitions that become one, in the order of the sources; one that is too large is not joined."""
    group: list[SourcePartition] = []
    held = 0
    for source, partitions in enumerate(sizes):
        for number, size in partitions.items():
            if size >= most:
                yield (SourcePartition(source, number),)
                continue
            if group and held + size > most:
                yield tuple(group)
                group, held = [], 0
            group.append(SourcePartition(source, number))
            held += size
    if group:
        yield tuple(group)
