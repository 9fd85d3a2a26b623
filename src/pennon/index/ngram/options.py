"""The options of an n-gram index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pennon.index.option_text import documented
from pennon.index.options import IndexOptions


@documented
@dataclass(frozen=True, kw_only=True)
class NGram(IndexOptions):
    """Options of an n-gram index, for filters on parts of texts. There are none."""

    index_type: ClassVar[str] = "NGRAM"
