"""`pennon_search` and `pennon_explain_search`."""

from __future__ import annotations

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
    return with_recall(catalog, SearchRequest.of(given["column"], k, options))


FUNCTIONS = Search("search", (DISTANCE,), check_option_names, _run, _explain, "query").functions()
