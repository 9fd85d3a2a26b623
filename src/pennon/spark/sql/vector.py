"""`pennon_search` and `pennon_explain_search`."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.search.explain import explain_search
from pennon.query.search.request import SearchRequest, check_option_names
from pennon.query.search.result_table import DISTANCE
from pennon.query.search.run import search
from pennon.query.search.tuning.resolve import with_recall
from pennon.spark.sql.function import Given
from pennon.spark.sql.searches import Search


def _run(catalog: Catalog, given: Given, k: int | None, options: Given) -> pa.Table:
    return search(catalog, _request(catalog, given, k, options), given["query"])


def _explain(catalog: Catalog, given: Given, k: int | None, options: Given) -> str:
    return str(explain_search(catalog, _request(catalog, given, k, options), given["query"]))


def _request(catalog: Catalog, given: Given, k: int | None, options: Given) -> SearchRequest:
    """SQL's array(0.1, 0.2) holds decimals."""
    bounds = options.get("distance_range")
    if isinstance(bounds, list):
        floats = [None if bound is None else float(bound) for bound in cast(list[Any], bounds)]
        options = {**options, "distance_range": floats}
    return with_recall(catalog, SearchRequest.of(given["column"], k, options))


FUNCTIONS = Search("search", (DISTANCE,), check_option_names, _run, _explain, "query").functions()
