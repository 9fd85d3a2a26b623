"""Small partitions of a build become larger ones, so that queries look into few: neighbors are merged on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pennon.engine import Engine
from pennon.format.index_metadata import segment_directory
from pennon.format.store import Store
from pennon.index.inverted.files import PartitionFiles
from pennon.index.inverted.merge import Source, merge_partitions
from pennon.jobs.inverted.plan import Target
from pennon.jobs.inverted.written import WrittenPartition, partition_numbers

# A query of this many partitions costs little more than of one; merging writes every posting again.
FEW = 16
_DELETING = 16


def join_small(
    engine: Engine, target: Target, uuid: str, partitions: Sequence[WrittenPartition]
) -> list[WrittenPartition]:
    """The partitions of a segment, neighbors merged where there are more than a few of them. No partition becomes
    larger than a task can merge within its memory; the files of those that were merged are deleted."""
    if len(partitions) <= FEW:
        return list(partitions)
    groups = list(_neighbors(partitions, target.joined_bytes))
    merged = [(number, group) for number, group in enumerate(groups) if len(group) > 1]
    if not merged:
        return list(partitions)
    made = dict(engine.map("join partitions", partial(_join, target, uuid), merged))
    store, directory = target.pin.open().store, segment_directory(uuid)
    old = [f"{directory}/{file.path}" for number, _ in merged for part in groups[number] for file in part.files]
    with ThreadPoolExecutor(_DELETING) as pool:
        list(pool.map(store.delete, old))
    return [made.get(number, group[0]) for number, group in enumerate(groups)]


def _neighbors(partitions: Sequence[WrittenPartition], most_bytes: int) -> Iterator[list[WrittenPartition]]:
    """Groups whose files have at most some bytes together, or of one."""
    group: list[WrittenPartition] = []
    held = 0
    for part in partitions:
        if group and held + part.size_bytes > most_bytes:
            yield group
            group, held = [], 0
        group.append(part)
        held += part.size_bytes
    if group:
        yield group


def _join(target: Target, uuid: str, numbered: tuple[int, Sequence[WrittenPartition]]) -> tuple[int, WrittenPartition]:
    """Task: the partition that a group becomes."""
    number, group = numbered
    store, directory = target.pin.open().store, segment_directory(uuid)
    sources = [_source(store, directory, part) for part in group]
    partition = next(partition_numbers(number))
    files = merge_partitions(sources, store, directory, partition, target.params.with_position)
    return number, WrittenPartition(partition, tuple(files))


def _source(store: Store, directory: str, part: WrittenPartition) -> Source:
    files = PartitionFiles(store, directory, part.number, {file.path: file.size_bytes for file in part.files})
    return Source(files, files.read_docs())
