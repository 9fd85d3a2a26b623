"""The searches of a text join in one process: block after block of queries, on one handle with a cache of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.format.addresses import Addresses
from pennon.index.arrays import Int64s
from pennon.index.inverted.search.hits import Hits
from pennon.query.catalog import Catalog
from pennon.query.search.prefilter import Prefilter
from pennon.query.text.request import TextColumnsLike, TextRequest, read_question
from pennon.query.text.run import find_texts, text_table


@dataclass(frozen=True, eq=False)
class _KeptFilter(Prefilter):
    """Finds out once which rows of some fragments are selected, unlike that of a single search."""

    known: dict[bytes, Addresses] = field(default_factory=dict[bytes, Addresses])

    def addresses(self, fragments: BitMap) -> Addresses:
        key = fragments.serialize()
        if key not in self.known:
            self.known[key] = super().addresses(fragments)
        return self.known[key]


class TextJoinSearch:
    """`words` are the options of plain words: operator, fuzziness and so on."""

    def __init__(
        self, catalog: Catalog, request: TextRequest, column: TextColumnsLike, words: Mapping[str, Any]
    ) -> None:
        self._catalog, self._request, self._column, self._words = catalog, request, column, words
        self._prefilter: Prefilter | None = None

    def best(self, texts: pa.Array) -> list[Hits]:
        """The best rows of each text by address, the best first; none for NULL."""
        asked = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
        found = [Hits.none()] * len(texts)
        if asked:
            catalog, request = self._catalog, self._request
            if request.filter is not None and self._prefilter is None:
                selected = Prefilter.of(catalog, request.filter)
                self._prefilter = _KeptFilter(selected.snapshot, selected.filter, selected.answer)
            queries = texts.drop_null().to_pylist()
            question = read_question(catalog.snapshot, request, self._column, queries, self._words)
            for place, hits in zip(asked, find_texts(catalog, question, self._prefilter)[0], strict=True):
                found[place] = hits
        return found

    def rows(self, found: Sequence[Hits]) -> pa.Table:
        """The columns of the request and the scores of all rows found, query by query."""
        return text_table(self._catalog, self._request, found, many=False)


def counts_of(found: Sequence[Hits]) -> Int64s:
    """The number of rows found for each query."""
    return np.array([len(hits) for hits in found], dtype=np.int64)
