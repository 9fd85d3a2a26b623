"""Small segments that share a model, searched as one.

After many appends an index has many segments of a few rows in each partition, and what a search does for every
partition costs more than to compare its rows. Partition i of all small segments is joined to one, which is kept in the
cache next to theirs; segments with large partitions stay by themselves, so that little is held twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pennon.index.cache import ByteCache
from pennon.index.vector.kinds import SubIndex
from pennon.index.vector.search.partition import SearchPartition
from pennon.index.vector.search.segment import VectorSegment
from pennon.index.vector.vectors import Mask
from pennon.query.search.live_rows import PartitionRows
from pennon.query.search.prefilter import Selection
from pennon.query.search.source import Loaded, SearchSegment, Source

# Rows of a partition, on average, up to which a segment is small.
SMALL_PARTITION = 512


@dataclass(frozen=True, eq=False)
class JoinedSegments:
    """Has the interface of a SearchSegment as far as probing needs it."""

    members: tuple[SearchSegment, ...]
    cache: ByteCache
    token: object = field(default_factory=object)  # the key of what is cached

    @property
    def opened(self) -> VectorSegment:
        """Of any of them: for their model."""
        return self.members[0].opened

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.sum([member.lengths for member in self.members], axis=0)

    @cached_property
    def num_rows(self) -> int:
        return int(self.lengths.sum())

    def flags(self, selection: Selection) -> tuple[Mask, int]:
        return selection.flags(
            self.token, lambda: np.concatenate([member.flags(selection)[0] for member in self.members])
        )

    def load(self, numbers: Sequence[int]) -> Loaded:
        """May raise UnusableSegment."""
        known = self.cache.get_all([(self.token, number) for number in numbers])
        missing = [number for number, found in zip(numbers, known, strict=True) if found is None]
        made, fetched = self._join(missing) if missing else ({}, (0,) * len(self.members))
        both = {number: made[number] if found is None else found for number, found in zip(numbers, known, strict=True)}
        partitions = {number: partition for number, (partition, _) in both.items()}
        return Loaded(partitions, {number: rows for number, (_, rows) in both.items()}, fetched)

    def _join(self, numbers: Sequence[int]) -> tuple[dict[int, tuple[SearchPartition, PartitionRows]], tuple[int, ...]]:
        loaded = [member.load([n for n in numbers if member.lengths[n]]) for member in self.members]
        starts = np.cumsum([0, *(member.live.size for member in self.members)]).tolist()
        made: dict[int, tuple[SearchPartition, PartitionRows]] = {}
        for number in numbers:
            own = [(each, start) for each, start in zip(loaded, starts, strict=False) if number in each.partitions]
            partition = _joined([each.partitions[number] for each, _ in own])
            rows = _joined_rows([(each.rows[number], start) for each, start in own], starts[-1])
            made[number] = partition, rows
            self.cache.put((self.token, number), made[number], partition.nbytes + rows.nbytes + rows.addresses.nbytes)
        return made, tuple(count for each in loaded for count in each.fetched)


Unit = SearchSegment | JoinedSegments


def units_of(source: Source) -> list[Unit]:
    """The segments of a source, the small ones of each model joined."""
    found: list[Unit] | None = source.memory.get("units")
    if found is None:
        found = source.memory["units"] = _units(source.segments)
    return found


def _units(segments: Sequence[SearchSegment]) -> list[Unit]:
    models: list[list[SearchSegment]] = []
    units: list[Unit] = []
    for segment in segments:
        if not _is_small(segment):
            units.append(segment)
            continue
        same = next((model for model in models if _agree(model[0].opened, segment.opened)), None)
        if same is None:
            models.append([segment])
        else:
            same.append(segment)
    return [*units, *(JoinedSegments(tuple(own), own[0].cache) if len(own) > 1 else own[0] for own in models)]


def _is_small(segment: SearchSegment) -> bool:
    files = segment.opened.files
    return files.kind.sub_index is not SubIndex.HNSW and segment.num_rows <= SMALL_PARTITION * files.ivf.num_partitions


def _agree(first: VectorSegment, second: VectorSegment) -> bool:
    return (
        first.files.kind == second.files.kind
        and first.files.ivf.fingerprint == second.files.ivf.fingerprint
        and first.files.quantizer.agrees_with(second.files.quantizer)
    )


def _joined(parts: Sequence[SearchPartition]) -> SearchPartition:
    if len(parts) == 1:
        return parts[0]
    row_ids = np.concatenate([part.row_ids for part in parts])
    # `alive` is a part of what their rows allow.
    return SearchPartition(row_ids, None, parts[0].scorer.joined([part.scorer for part in parts[1:]]), None)


def _joined_rows(parts: Sequence[tuple[PartitionRows, int]], places_end: int) -> PartitionRows:
    """With the places of each after those of the segments before it."""
    addresses = np.concatenate([rows.addresses for rows, _ in parts])
    some = any(rows.allowed is not None for rows, _ in parts)
    allowed = np.concatenate([rows.mask for rows, _ in parts]) if some else None
    kind = np.uint32 if places_end <= np.iinfo(np.uint32).max else np.uint64
    places = np.concatenate([rows.places + np.uint64(start) for rows, start in parts if rows.places is not None])
    nbytes = places.nbytes + (0 if allowed is None else allowed.nbytes) + 128
    return PartitionRows(addresses, allowed, nbytes, places.astype(kind))
