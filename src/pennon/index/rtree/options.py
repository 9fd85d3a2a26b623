"""The options of an R-tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pennon.index.option_text import documented
from pennon.index.options import IndexOptions, option

DEFAULT_PAGE_SIZE = 4096
MAX_PAGE_SIZE = 1 << 20


@documented
@dataclass(frozen=True, kw_only=True)
class RTree(IndexOptions):
    """Options of an R-tree, for filters on geometries."""

    index_type: ClassVar[str] = "RTREE"

    page_size: int = option(
        DEFAULT_PAGE_SIZE, "Boxes per page, the smallest unit that a search reads.", at_least=2, at_most=MAX_PAGE_SIZE
    )
