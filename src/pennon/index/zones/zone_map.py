"""A zone map: for every zone the bounds of its values, and the number of its NULLs and NaNs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.format.addresses import Addresses
from pennon.index.bounds import Bounds
from pennon.index.conditions import ColumnRanges, Interval
from pennon.index.value_order import SortedValues, argsort, exchange_type, fixed_keys
from pennon.index.zones.bounds import Counts, bounds_of, has_bounds, nan_counts, null_counts, numbers_found
from pennon.index.zones.cutting import Mask, Positions, ZoneCutter, Zones


@dataclass(frozen=True, eq=False)
class ZoneBounds:
    """Zones in any order. Bounds are NULL if a zone has no value, or the type no bounds."""

    zones: Zones
    mins: pa.Array
    maxs: pa.Array
    null_counts: Counts
    nan_counts: Counts

    def __len__(self) -> int:
        return len(self.zones)

    def chosen(self, mask: Mask) -> ZoneBounds:
        kept = pa.array(np.flatnonzero(mask))
        return ZoneBounds(
            self.zones.chosen(mask),
            self.mins.take(kept),
            self.maxs.take(kept),
            self.null_counts[mask],
            self.nan_counts[mask],
        )


def joined(parts: list[ZoneBounds], type_: pa.DataType) -> ZoneBounds:
    """The zones of all parts, by fragment and offset."""
    nothing = np.empty(0, dtype=np.uint64)
    starts = np.concatenate([nothing, *(part.zones.starts for part in parts)])
    lengths = np.concatenate([nothing, *(part.zones.lengths for part in parts)])
    order = np.argsort(starts, kind="stable")
    places = pa.array(order)
    empty = pa.array([], type_)
    none = np.empty(0, dtype=np.uint32)
    return ZoneBounds(
        Zones(starts[order], lengths[order]),
        pa.concat_arrays([empty, *(part.mins for part in parts)]).take(places),
        pa.concat_arrays([empty, *(part.maxs for part in parts)]).take(places),
        np.concatenate([none, *(part.null_counts for part in parts)])[order],
        np.concatenate([none, *(part.nan_counts for part in parts)])[order],
    )


def allowed(zone_map: ZoneBounds, zones: Positions, values: pa.Array) -> Mask:
    """For each value, whether a search for it finds the zone of the given number; for NULLs, whether the zone has
    any."""
    found = zone_map.null_counts[zones] > 0
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if not has_bounds(values.type):
        found[present] = True
        return found
    searched, of = values.take(pa.array(present)), pa.array(zones[present])
    low, high = zone_map.mins.take(of), zone_map.maxs.take(of)
    found[present] = _not_above(low, searched) & _not_above(searched, high)
    if pa.types.is_floating(values.type):
        is_nan = np.isnan(searched.to_numpy(zero_copy_only=False))
        found[present] |= is_nan & (zone_map.nan_counts[zones[present]] > 0)
    return found


def _not_above(left: pa.Array, right: pa.Array) -> Mask:
    """left <= right; False if one of them is NULL."""
    found = pc.and_(left.is_valid(), right.is_valid()).to_numpy(zero_copy_only=False).copy()
    both = pa.array(np.flatnonzero(found))
    left, right = left.take(both), right.take(both)
    left_keys, right_keys = fixed_keys(left), fixed_keys(right)
    if left_keys is not None and right_keys is not None:
        found[found] = left_keys <= right_keys
    else:
        wide = exchange_type(left.type)
        found[found] = pc.less_equal(left.cast(wide), right.cast(wide)).to_numpy(zero_copy_only=False)
    return found


@dataclass
class ZoneMapBuilder:
    """Takes live rows batch by batch, the rows of a fragment in address order."""

    type: pa.DataType
    rows_per_zone: int
    _cutter: ZoneCutter = field(init=False)
    _mins: list[pa.Array] = field(default_factory=list)
    _maxs: list[pa.Array] = field(default_factory=list)
    _nulls: list[Counts] = field(default_factory=list)
    _nans: list[Counts] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._cutter = ZoneCutter(self.rows_per_zone)

    def add(self, values: pa.Array, addresses: Addresses) -> None:
        edges, _ = self._cutter.cut(addresses)
        least, most = bounds_of(values, edges)
        self._mins.append(least)
        self._maxs.append(most)
        self._nulls.append(null_counts(values, edges))
        self._nans.append(nan_counts(values, edges))

    def finish(self) -> ZoneBounds:
        """Join the pieces of zones that span several batches."""
        edges, empty = self._cutter.piece_edges(), pa.array([], self.type)
        mins, maxs = pa.concat_arrays([empty, *self._mins]), pa.concat_arrays([empty, *self._maxs])
        nulls, nans = _summed(self._nulls, edges), _summed(self._nans, edges)
        least, most = bounds_of(mins, edges)[0], bounds_of(maxs, edges)[1]
        return ZoneBounds(self._cutter.zones(), numbers_found(least, most), most, nulls, nans)


class ZoneSearch:
    """The bounds of zones, sorted once, to compare many ranges with all of them at once."""

    def __init__(self, zone_map: ZoneBounds, type_: pa.DataType) -> None:
        self._type = type_
        present = (zone_map.mins.is_valid().to_numpy(zero_copy_only=False)) & (
            zone_map.maxs.is_valid().to_numpy(zero_copy_only=False)
        )
        self._count = len(zone_map)
        self._with_nans = zone_map.nan_counts > 0
        self._bounded = np.flatnonzero(present)
        where = pa.array(self._bounded)
        self._mins, self._min_ranks = _ranked(zone_map.mins.take(where))
        self._maxs, self._max_ranks = _ranked(zone_map.maxs.take(where))

    @property
    def nbytes(self) -> int:
        ranks = self._min_ranks.nbytes + self._max_ranks.nbytes
        return self._mins.nbytes + self._maxs.nbytes + ranks + self._bounded.nbytes + self._count

    def matching(self, condition: ColumnRanges) -> Mask:
        """A mask of the zones that may contain a value of the ranges."""
        found = np.zeros(self._count, dtype=np.bool_)
        if not condition.spans:
            return found
        bounds = Bounds.of(condition)
        # If any range overlaps a zone, it is the first range that does not end before the zone begins.
        nearest = np.searchsorted(bounds.stops(self._mins), self._min_ranks, "right")
        starts = np.append(bounds.starts(self._maxs), len(self._maxs))
        found[self._bounded] = self._max_ranks >= starts[nearest]
        if pa.types.is_floating(self._type) and _holds_nan(condition.intervals):
            found |= self._with_nans
        return found


def _holds_nan(intervals: tuple[Interval, ...]) -> bool:
    """pylance's bounds exclude NaNs, so zones with NaNs match every range that extends beyond infinity."""
    low, high = intervals[0].low, intervals[-1].high
    return low is None or high is None or bool(np.isnan(low.as_py())) or bool(np.isnan(high.as_py()))


def _ranked(values: pa.Array) -> tuple[SortedValues, Positions]:
    order = argsort(values)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return SortedValues(values.take(pa.array(order))), ranks


def _summed(counts: list[Counts], edges: Positions) -> Counts:
    if not len(edges):
        return np.empty(0, dtype=np.uint32)
    return np.add.reduceat(np.concatenate(counts), edges, dtype=np.uint32)
