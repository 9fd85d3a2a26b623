"""Load indices into the cache before queries need them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from pennon.display import Displayed, DisplayedFields
from pennon.errors import IndexNotFound
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.index.cache import CacheUse, counting_cache
from pennon.query.catalog import Catalog, UnusableSegment, UsableIndex, attributing_errors
from pennon.wording import human_bytes, in_lines, plural


@dataclass(frozen=True)
class WarmedIndex(DisplayedFields):
    """What was loaded of an index. `complete` is False if the cache became full, or a segment cannot be used."""

    name: str
    type: str
    segments: int
    entries: int
    bytes: int
    complete: bool

    def __str__(self) -> str:
        loaded = f"{plural(self.entries, 'entry', 'entries')}, {human_bytes(self.bytes)}"
        return (
            f"{self.name}: {self.type}, {plural(self.segments, 'segment')}, {loaded}{', not all' * (not self.complete)}"
        )


@dataclass(frozen=True)
class Warmed(Displayed):
    """What `warm` loaded into the cache; what was there already is not counted."""

    table: str
    version: int
    indices: tuple[WarmedIndex, ...]
    entries: int
    bytes: int
    reads: int
    seconds: float
    complete: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON has them."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"warmed {self.table}, version {self.version}", *(f"  index    {index}" for index in self.indices)]
        what = f"{plural(self.entries, 'entry', 'entries')}, {human_bytes(self.bytes)}"
        lines.append(f"  loaded   {what}, {plural(self.reads, 'index read')}, {self.seconds * 1000:.1f} ms")
        if not self.complete:
            lines.append("  left     what does not fit into the cache, or cannot be used")
        return in_lines(lines)


def warm(catalog: Catalog, name: str | None) -> Warmed:
    """Load one index, or all of them in the order of the table, until the cache would be full of them."""
    snapshot = catalog.snapshot
    known = dict.fromkeys(segment.name for segment in snapshot.manifest.user_segments)
    if name is not None and name not in known:
        raise IndexNotFound.among(known, name, snapshot.uri)
    reads, start = ReadCounter(), time.perf_counter()
    with counting_reads(reads), counting_cache() as use:
        indices = [index for each in [*catalog.indices.values()] for index in each if name in (None, index.name)]
        found = tuple(_warm_index(catalog, index, use) for index in indices)
    return Warmed(
        snapshot.uri,
        snapshot.version,
        found,
        use.loaded,
        use.loaded_bytes,
        reads.reads,
        time.perf_counter() - start,
        all(index.complete for index in found),
    )


def _warm_index(catalog: Catalog, index: UsableIndex, use: CacheUse) -> WarmedIndex:
    entries, size, refused, complete = use.loaded, use.loaded_bytes, use.refused, True
    for usable in index.segments:
        try:
            with attributing_errors(usable):
                # Opening it reads lookups, centroids and dictionaries.
                for _ in catalog.open(usable).warm():
                    if use.loaded_bytes >= catalog.cache.capacity_bytes:
                        complete = False
                        break
        except UnusableSegment as unusable:
            catalog.exclude(unusable)
            complete = False
    complete &= use.refused == refused
    type_ = index.kind.label(catalog.snapshot, index.segments[0].segment)
    return WarmedIndex(index.name, type_, len(index.segments), use.loaded - entries, use.loaded_bytes - size, complete)
