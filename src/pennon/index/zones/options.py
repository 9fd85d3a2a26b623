"""The options of zone maps and Bloom filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pennon.errors import InvalidArgument
from pennon.index.option_text import documented
from pennon.index.options import IndexOptions, option
from pennon.index.zones.details import DEFAULT_ROWS_PER_ZONE
from pennon.index.zones.layouts import DEFAULT_ITEMS, DEFAULT_PROBABILITY

MOST_ROWS = (1 << 32) - 1
MOST_ITEMS = 1 << 26


@documented
@dataclass(frozen=True, kw_only=True)
class ZoneMap(IndexOptions):
    """Options of a zone map, for ranges on columns whose similar values are near each other in the table, such as
    times."""

    index_type: ClassVar[str] = "ZONEMAP"

    rows_per_zone: int = option(
        DEFAULT_ROWS_PER_ZONE,
        "Rows per zone, which are read together. Smaller zones are more selective, but there are more of them.",
        at_least=1,
        at_most=MOST_ROWS,
    )


@documented
@dataclass(frozen=True, kw_only=True)
class BloomFilter(IndexOptions):
    """Options of Bloom filters, for single values in columns of many distinct ones, such as identifiers."""

    index_type: ClassVar[str] = "BLOOMFILTER"

    number_of_items: int = option(
        DEFAULT_ITEMS,
        "Rows per zone. Each zone has a filter and is read as a whole.",
        at_least=1,
        at_most=MOST_ITEMS,
    )
    probability: float = option(
        DEFAULT_PROBABILITY,
        "False positive rate for zones of distinct values, above 0 and below 1.",
    )

    def check(self) -> None:
        if not 0 < self.probability < 1:
            raise InvalidArgument(f"probability must be above 0 and below 1, not {self.probability}")
