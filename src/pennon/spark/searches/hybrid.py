"""`pennon_search_hybrid`."""

from __future__ import annotations

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.hybrid.run import COMPUTED, HybridRequest, check_option_names, search_hybrid
from pennon.spark.searches import Given, Search


def _run(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    request = HybridRequest.of(given["vector_column"], given["text_column"], k, options)
    return search_hybrid(catalog, request, given["vector"], given["text"], many=False)


SEARCH = Search(COMPUTED, check_option_names, _run, "vector")
