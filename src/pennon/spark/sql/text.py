"""`pennon_search_text` and `pennon_explain_search_text`."""

from __future__ import annotations

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.text.explain import explain_text
from pennon.query.text.request import SCORE, TextRequest, check_option_names
from pennon.query.text.run import search_text
from pennon.spark.sql.function import Given
from pennon.spark.sql.searches import Search


def _run(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    return search_text(catalog, TextRequest.of(k, options), given["column"], given["query"], options)


def _explain(catalog: Catalog, given: Given, k: int, options: Given) -> str:
    return str(explain_text(catalog, TextRequest.of(k, options), given["column"], given["query"], options))


FUNCTIONS = Search("search_text", (SCORE,), check_option_names, _run, _explain).functions()
