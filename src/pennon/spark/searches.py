"""The searches behind the functions of SQL: what they compute, the options they take, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.hybrid.run import COMPUTED as HYBRID_COLUMNS
from pennon.query.hybrid.run import HybridRequest, search_hybrid
from pennon.query.hybrid.run import check_option_names as check_hybrid_options
from pennon.query.search.request import SearchRequest, check_option_names
from pennon.query.search.result_table import DISTANCE
from pennon.query.search.run import search
from pennon.query.text.request import SCORE, TextRequest
from pennon.query.text.request import check_option_names as check_text_options
from pennon.query.text.run import search_text

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Search:
    """`vector` is the name of the argument that is one; `run` takes a catalog, the arguments, k and the options."""

    computed: tuple[str, ...]
    check_options: Callable[[Iterable[str]], None]
    run: Callable[[Catalog, Given, int, Given], pa.Table]
    vector: str | None = None


def _nearest(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    return search(catalog, SearchRequest.of(given["column"], k, options), given["query"])


def _best(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    return search_text(catalog, TextRequest.of(k, options), given["column"], given["query"], options)


def _both(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    request = HybridRequest.of(given["vector_column"], given["text_column"], k, options)
    return search_hybrid(catalog, request, given["vector"], given["text"], many=False)


SEARCHES = {
    "pennon_search": Search((DISTANCE,), check_option_names, _nearest, "query"),
    "pennon_search_text": Search((SCORE,), check_text_options, _best),
    "pennon_search_hybrid": Search(HYBRID_COLUMNS, check_hybrid_options, _both, "vector"),
}
