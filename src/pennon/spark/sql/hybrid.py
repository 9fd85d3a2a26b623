"""`pennon_search_hybrid` and `pennon_explain_search_hybrid`, which has the plans of both searches."""

from __future__ import annotations

import pyarrow as pa

from pennon.query.catalog import Catalog
from pennon.query.hybrid.run import COMPUTED, HybridRequest, check_option_names, search_hybrid, vector_request
from pennon.query.search.explain import explain_search
from pennon.query.text.explain import explain_text
from pennon.query.text.request import TextRequest
from pennon.spark.sql.function import Given
from pennon.spark.sql.searches import Search


def _run(catalog: Catalog, given: Given, k: int, options: Given) -> pa.Table:
    request = HybridRequest.of(given["vector_column"], given["text_column"], k, options)
    return search_hybrid(catalog, request, given["vector"], given["text"], many=False)


def _explain(catalog: Catalog, given: Given, k: int, options: Given) -> str:
    request = HybridRequest.of(given["vector_column"], given["text_column"], k, options)
    of_words = {"filter": request.filter, "index": request.text_index, **request.of_words}
    texts = TextRequest.of(request.candidates, of_words)
    by_vector = explain_search(catalog, vector_request(catalog, request), given["vector"])
    by_text = explain_text(catalog, texts, request.text_column, given["text"], request.of_words)
    return f"{by_vector}\n{by_text}"


FUNCTIONS = Search(
    "search_hybrid",
    COMPUTED,
    check_option_names,
    _run,
    _explain,
    "vector",
).functions()
