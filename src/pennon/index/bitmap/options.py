"""The options of bitmap indices. There are none so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pennon.index.option_text import documented
from pennon.index.options import IndexOptions


@documented
@dataclass(frozen=True, kw_only=True)
class Bitmap(IndexOptions):
    """Options of a bitmap index, for filters on columns of few distinct values."""

    index_type: ClassVar[str] = "BITMAP"


@documented
@dataclass(frozen=True, kw_only=True)
class LabelList(IndexOptions):
    """Options of an index of labels, for filters on the contents of lists."""

    index_type: ClassVar[str] = "LABEL_LIST"
