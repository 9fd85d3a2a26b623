"""`pennon_search_text`."""

from __future__ import annotations

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.text.request import SCORE, TextRequest, check_option_names
from pennon.query.text.run import search_text
from pennon.spark.searches import Given, Search


def _run(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    return search_text(catalog, TextRequest.of(k, options), given["column"], given["query"], options)


SEARCH = Search((SCORE,), check_option_names, _run)
