"""A measurement as it is stored with the table: in its configuration, which pylance leaves alone.

Every entry has a key that starts with `pennon.tuning.` and a JSON object:

    format 1; column, metric, k, recall; filter: null, or its shape and the share of rows it selected;
    rows, version, seconds since 1970; points: settings with recall and time; indices: what they were like
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from pennon.format.snapshot import Snapshot
from pennon.query.catalog import Catalog
from pennon.query.search.tuning.settings import Measured, Setting, frontier

if TYPE_CHECKING:  # which chooses an index by what is stored
    from pennon.query.search.source import Source

logger = logging.getLogger(__name__)

PREFIX = "pennon.tuning."
FORMAT = 1
# Filters of one shape that select shares of rows within this factor are of one class.
SIMILAR_SHARES = 2.0
# Beyond these, a measurement is doubtful: rows since then, rows without an index, deltas, skew of partitions.
GROWN, UNCOVERED, DELTAS, SKEWED = 0.2, 0.1, 3, 2.0


@dataclass(frozen=True)
class FilterClass:
    """A filter without its literals, and the share of rows that it selects."""

    shape: str
    selected: float

    def is_like(self, other: FilterClass) -> bool:
        """Whether what was measured for one holds for the other."""
        low, high = sorted((self.selected, other.selected))
        return self.shape == other.shape and high <= SIMILAR_SHARES * low


@dataclass(frozen=True)
class IndexState:
    """What an index was like when it was measured. `models` identifies its centroids, which merges keep; `skew` is the
    largest partition in units of the mean."""

    name: str
    kind: str
    partitions: int
    row_bytes: int
    rows: int
    segments: tuple[str, ...]
    models: str
    skew: float

    @classmethod
    def of(cls, source: Source) -> IndexState:
        """Of an index with at least one usable segment; deltas are small next to the first."""
        assert source.index is not None
        opened = [segment.opened for segment in source.segments]
        largest = max(opened, key=lambda each: int(each.lengths.sum()))
        lengths = largest.lengths
        return cls(
            source.index,
            largest.files.kind.name,
            largest.files.ivf.num_partitions,
            largest.row_bytes,
            sum(int(each.lengths.sum()) for each in opened),
            tuple(segment.usable.segment.uuid for segment in source.segments),
            hashlib.sha256(np.ascontiguousarray(largest.files.ivf.centroids).tobytes()).hexdigest()[:16],
            float(lengths.max() / max(1.0, lengths.mean())) if len(lengths) else 1.0,
        )

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if it is not one."""
        return cls(
            str(found["name"]),
            str(found["kind"]),
            int(found["partitions"]),
            int(found["row_bytes"]),
            int(found["rows"]),
            tuple(map(str, found["segments"])),
            str(found["models"]),
            float(found["skew"]),
        )

    def replaced(self, now: IndexState) -> str | None:
        """Why nothing that was measured holds for the index as it is now."""
        if (now.kind, now.row_bytes) != (self.kind, self.row_bytes):
            return f"index {self.name!r} is another one now: {now.kind} in place of {self.kind}"
        if now.partitions != self.partitions:
            return f"index {self.name!r} has {now.partitions:,} partitions now, it had {self.partitions:,}"
        return f"index {self.name!r} was trained again since" if now.models != self.models else None

    def doubts(self, now: IndexState) -> list[str]:
        """Why what was measured may no longer hold."""
        found: list[str] = []
        if abs(now.rows - self.rows) > GROWN * max(1, self.rows):
            found.append(f"index {self.name!r} has {now.rows:,} rows now, it had {self.rows:,}")
        if len(now.segments) - len(self.segments) >= DELTAS:
            found.append(f"index {self.name!r} has {len(now.segments) - len(self.segments)} more segments than then")
        if now.skew > SKEWED * self.skew:
            found.append(
                f"the largest partition of index {self.name!r} has {now.skew:.1f} times the mean now, it had "
                f"{self.skew:.1f} times"
            )
        return found


@dataclass(frozen=True)
class Tuning:
    """What was measured of a column: settings with recall and time, for k neighbors and one class of filters, and what
    the table was like."""

    column: str
    metric: str
    k: int
    recall: float
    filter: FilterClass | None
    points: tuple[Measured, ...]
    indices: tuple[IndexState, ...]
    rows: int
    version: int
    measured_at: float

    def shortened(self) -> Tuning:
        """With what searches choose from: of each index its default, and settings that no other of it beats."""
        names = dict.fromkeys(point.setting.index for point in self.points)
        kept = {point.setting: point for name in names for point in frontier(self.points_of(frozenset([name])))}
        kept |= {point.setting: point for point in self.points if point.setting == Setting(point.setting.index)}
        return replace(self, points=tuple(kept.values()))

    @property
    def key(self) -> str:
        """Of its entry in the table's configuration: one for a column, metric, k and class of filters."""
        band = None if self.filter is None else [self.filter.shape, round(2 * np.log10(self.filter.selected + 1e-12))]
        what = json.dumps([self.column, self.metric, self.k, band])
        return f"{PREFIX}{hashlib.sha256(what.encode()).hexdigest()[:20]}"

    def to_json(self) -> str:
        """The value of the entry."""
        return json.dumps(
            {
                "format": FORMAT,
                "column": self.column,
                "metric": self.metric,
                "k": self.k,
                "recall": self.recall,
                "filter": None if self.filter is None else asdict(self.filter),
                "rows": self.rows,
                "version": self.version,
                "measured_at": self.measured_at,
                "points": [point.to_dict() for point in self.points],
                "indices": [asdict(index) for index in self.indices],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError, KeyError or TypeError if it is not one."""
        found = cast(Mapping[str, Any], json.loads(text))
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']!r}")
        of_filter = found["filter"]
        return cls(
            column=str(found["column"]),
            metric=str(found["metric"]),
            k=int(found["k"]),
            recall=float(found["recall"]),
            filter=None if of_filter is None else FilterClass(str(of_filter["shape"]), float(of_filter["selected"])),
            points=tuple(Measured.from_dict(point) for point in found["points"]),
            indices=tuple(map(IndexState.from_dict, found["indices"])),
            rows=int(found["rows"]),
            version=int(found["version"]),
            measured_at=float(found["measured_at"]),
        )

    def is_for(self, column: str, metric: str, k: int, filter: FilterClass | None) -> bool:
        """Whether it was measured for searches like this one."""
        if (self.column, self.metric) != (column, metric) or k > self.k:
            return False
        if filter is None or self.filter is None:
            return filter is self.filter
        return self.filter.is_like(filter)

    def points_of(self, names: frozenset[str | None]) -> tuple[Measured, ...]:
        """Those of some indices."""
        return tuple(point for point in self.points if point.setting.index in names)


def stored_tunings(catalog: Catalog) -> tuple[Tuning, ...]:
    """What the table's configuration holds, the newest first; read once for a handle."""
    known, key = catalog.lasting, "tunings"
    if key not in known:
        known[key] = read_tunings(catalog.snapshot)
    return known[key]


def read_tunings(snapshot: Snapshot) -> tuple[Tuning, ...]:
    """The same; entries that are not Pennon's are passed over."""
    found: list[Tuning] = []
    for name, text in snapshot.config.items():
        if not name.startswith(PREFIX):
            continue
        try:
            found.append(Tuning.from_json(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s has %s that is not a measurement: %s", snapshot.uri, name, error)
    return tuple(sorted(found, key=lambda each: -each.measured_at))
