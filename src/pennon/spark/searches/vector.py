"""`pennon_search`."""

from __future__ import annotations

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest, check_option_names
from pennon.query.search.result_table import DISTANCE
from pennon.query.search.run import search
from pennon.spark.searches import Given, Search


def _run(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    return search(catalog, SearchRequest.of(given["column"], k, options), given["query"])


SEARCH = Search((DISTANCE,), check_option_names, _run, "query")
