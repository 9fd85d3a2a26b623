"""The options of a B-tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pennon.errors import InvalidArgument
from pennon.index.btree.lookup import DEFAULT_BATCH_SIZE
from pennon.index.option_text import documented
from pennon.index.options import IndexOptions, option

MAX_BATCH_SIZE = 1 << 20


@documented
@dataclass(frozen=True, kw_only=True)
class BTree(IndexOptions):
    """Options of a B-tree, for filters on numbers, text, dates and times."""

    index_type: ClassVar[str] = "BTREE"

    ranges: int | None = option(
        None,
        "Number of value ranges. Each range has its own page file.",
        unset="chosen from the number of rows, the cores and the task memory",
        at_least=1,
    )
    rows_per_range: int | None = option(
        None, "Rows per range, instead of ranges.", unset="follows from ranges", at_least=1
    )
    batch_size: int = option(
        DEFAULT_BATCH_SIZE, "Rows per page, the smallest unit that a lookup reads.", at_least=1, at_most=MAX_BATCH_SIZE
    )

    def check(self) -> None:
        if self.ranges is not None and self.rows_per_range is not None:
            raise InvalidArgument("ranges and rows_per_range contradict each other", "Use one of the two")
