"""A segment of zones for the report."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pennon.index.description import Chart, Description, histogram
from pennon.index.value_order import argsort
from pennon.index.zones.cutting import Zones
from pennon.index.zones.zone_map import ZoneBounds
from pennon.wording import plural

Parameters = tuple[tuple[str, str], ...]


def describe_zone_map(zone_map: ZoneBounds, parameters: Parameters) -> Description:
    """Zones, and how many others a zone's bounds overlap: the fewer, the fewer zones a filter has to read."""
    overlaps = mean_overlaps(zone_map.mins, zone_map.maxs)
    text = "The fewer other zones the bounds of a zone overlap, the fewer zones a filter reads."
    return describe_zones(zone_map.zones, parameters, {"overlapping_zones": round(overlaps, 3)}, text)


def mean_overlaps(mins: pa.Array, maxs: pa.Array) -> float:
    """Of all zones with bounds, how many others the bounds of one meet on average."""
    present = mins.is_valid().to_numpy(zero_copy_only=False) & maxs.is_valid().to_numpy(zero_copy_only=False)
    where, count = pa.array(np.flatnonzero(present)), int(np.count_nonzero(present))
    if not count:
        return 0.0
    # In order of value, lower bounds first: a zone meets those that began before it and have not ended yet.
    is_max = argsort(pa.concat_arrays([mins.take(where), maxs.take(where)])) >= count
    begun, ended = np.cumsum(~is_max) - 1, np.cumsum(is_max)
    return 2 * int((begun - ended)[~is_max].sum()) / count


def describe_zones(
    zones: Zones, parameters: Parameters, figures: dict[str, float] | None = None, text: str = ""
) -> Description:
    """How many rows zones span: those of small fragments are short, those with deleted rows long."""
    lengths = zones.lengths.astype(np.int64)
    fragments = len(np.unique(zones.fragments))
    measures = {"zones": len(zones), "zone_fragments": fragments, "zone_rows": int(lengths.sum()), **(figures or {})}
    if not len(zones):
        return Description(parameters, measures, Chart("Zones", "Zones", "There are none: no row had to be indexed."))
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest:
        spans = f"Every zone spans {plural(longest, 'row')}."
        chart = Chart("Zones", "Zones", f"{spans} {text}".strip())
    else:
        spans = f"A zone spans {int(lengths.mean()):,} rows on average."
        ends = f"{shortest:,} rows", f"{longest:,} rows"
        bars = histogram(lengths - shortest, "zone", "row", lowest=shortest)
        chart = Chart("Zones by the rows they span", "Zones by rows", f"{spans} {text}".strip(), bars, ends)
    return Description(parameters, measures, chart)
