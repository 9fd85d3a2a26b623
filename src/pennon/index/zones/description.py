"""A segment of zones for the report."""

from __future__ import annotations

import numpy as np

from pennon.index.description import Chart, Description, histogram
from pennon.index.zones.cutting import Zones
from pennon.wording import plural


def describe_zones(zones: Zones, parameters: tuple[tuple[str, str], ...]) -> Description:
    """The number of rows that zones span: those of small fragments are short, those with deleted rows long."""
    lengths = zones.lengths.astype(np.int64)
    fragments = len(np.unique(zones.fragments))
    measures = {"zones": len(zones), "zone_fragments": fragments, "zone_rows": int(lengths.sum())}
    if not len(zones):
        return Description(parameters, measures, Chart("Zones", "Zones", "None: no row had to be indexed."))
    chart = Chart(
        f"{plural(len(zones), 'zone')} in {plural(fragments, 'fragment')}",
        "Zones by the rows they span",
        f"A zone spans {int(lengths.mean()):,} rows on average, the longest {int(lengths.max()):,}.",
        histogram(lengths, "zone", "row"),
        ("short", "long"),
    )
    return Description(parameters, measures, chart)
