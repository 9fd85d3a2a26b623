"""A hybrid search: both searches, their fusion, and the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import FilterLike
from pennon.query.hybrid.fusion import ABSENT, Fusion, Ranked, checked_weights, fuse
from pennon.query.scan.request import ScanRequest, check_request, column_names
from pennon.query.search.request import SearchRequest, read_request
from pennon.query.search.result_table import DISTANCE, rows_table
from pennon.query.search.run import find_neighbors
from pennon.query.search.tuning.resolve import with_recall
from pennon.query.text.request import SCORE, TextRequest, read_question
from pennon.query.text.run import find_texts

RELEVANCE, VECTOR_RANK, TEXT_RANK = "_relevance_score", "_vector_rank", "_text_rank"
COMPUTED = (DISTANCE, SCORE, VECTOR_RANK, TEXT_RANK, RELEVANCE)
_OF_VECTORS = ("metric", "nprobes", "refine_factor", "ef", "recall")
_OF_WORDS = ("operator", "fuzziness", "max_expansions", "prefix_length")


class HybridOptions(TypedDict, total=False):
    """The options of a hybrid search, in addition to its two queries and k.

    fusion: `"rrf"`, by the ranks of rows; or `"linear"`, by their distances and scores.
    weights: of the vectors and of the text: 1 and 1, for linear 0.7 and 0.3.
    candidates: rows that each of the two searches finds; k by default.
    filter: only rows it selects are candidates.
    columns: those to return, every one by default; scores and ranks come after them.
    metric, nprobes, refine_factor, ef, recall: of the vector search; recall is that of its candidates.
    operator, fuzziness, max_expansions, prefix_length: of the text search.
    vector_index, text_index: names of the indices; those that cover most rows by default.
    """

    fusion: str
    weights: Sequence[float] | None
    candidates: int | None
    filter: FilterLike | None
    columns: Sequence[str] | None
    with_row_id: bool
    with_row_address: bool
    metric: str | None
    nprobes: int | None
    refine_factor: int | None
    ef: int | None
    recall: float | None
    operator: str
    fuzziness: int | None
    max_expansions: int
    prefix_length: int
    vector_index: str | None
    text_index: str | None


@dataclass(frozen=True)
class HybridRequest:
    """What the user requests, without the queries."""

    vector_column: str
    text_column: Any
    k: int
    candidates: int
    fusion: Fusion
    weights: tuple[float, float]
    filter: str | None
    columns: tuple[str, ...] | None
    with_row_id: bool
    with_row_address: bool
    of_vectors: Mapping[str, Any]
    of_words: Mapping[str, Any]
    text_index: str | None = None

    @classmethod
    def of(cls, vector_column: str, text_column: Any, k: int, options: Mapping[str, Any]) -> HybridRequest:
        """From what users give.

        Raises:
            InvalidArgument: an option that hybrid searches do not take, or a value that it does not allow.
        """
        check_option_names(options)
        given = {name: value for name, value in options.items() if value is not None}
        fusion = Fusion.named(given.get("fusion", Fusion.RRF.value))
        for name, value in (("k", k), ("candidates", given.get("candidates", 1))):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InvalidArgument(f"{name} must be a whole number of at least 1, not {value!r}")
        for name in ("with_row_id", "with_row_address"):
            if not isinstance(given.get(name, False), bool):
                raise InvalidArgument(f"{name} must be True or False, not {given[name]!r}")
        return cls(
            vector_column,
            text_column,
            int(k),
            int(given.get("candidates", k)),
            fusion,
            checked_weights(fusion, given.get("weights")),
            given.get("filter"),
            column_names(given["columns"]) if "columns" in given else None,
            given.get("with_row_id", False),
            given.get("with_row_address", False),
            {name: given[name] for name in _OF_VECTORS if name in given}
            | ({"index": given["vector_index"]} if "vector_index" in given else {}),
            {name: given[name] for name in _OF_WORDS if name in given},
            given.get("text_index"),
        )


def check_option_names(names: Iterable[str]) -> None:
    """Whether hybrid searches take options of these names."""
    unknown = sorted(set(names) - HybridOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(HybridOptions.__annotations__)
        raise InvalidArgument(f"hybrid searches take no option {unknown[0]!r}", f"They take: {known}")


def vector_request(catalog: Catalog, request: HybridRequest) -> SearchRequest:
    """The search of vectors that is a part of a hybrid search."""
    options = {**request.of_vectors, "filter": request.filter}
    return with_recall(catalog, SearchRequest.of(request.vector_column, request.candidates, options))


def search_hybrid(catalog: Catalog, request: HybridRequest, vectors: Any, texts: Any, *, many: bool) -> pa.Table:
    """The rows that both searches rank best together; with `many`, of each pair of a vector and a text."""
    snapshot = catalog.snapshot
    check_request(snapshot, ScanRequest(columns=tuple(n for n in request.columns or () if n not in COMPUTED)))
    nearest = vector_request(catalog, request)
    best = TextRequest.of(request.candidates, {"filter": request.filter, "index": request.text_index})
    vector_question = read_request(snapshot, nearest, vectors, many=many)
    given = _listed(texts) if many else [texts]
    if len(given) != vector_question.count:
        problem = f"{vector_question.count} vectors have {len(given)} texts"
        raise InvalidArgument(problem, "Give one text for each vector")
    text_question = read_question(snapshot, best, request.text_column, given, request.of_words)
    neighbors, _ = find_neighbors(catalog, vector_question)
    matches, _ = find_texts(catalog, text_question)
    present = neighbors.found
    nearby = Ranked(present.sum(axis=1), neighbors.addresses[present], -neighbors.distances[present])
    counts = np.array([len(hits) for hits in matches], dtype=np.int64)
    addresses = np.concatenate([np.empty(0, dtype=np.uint64), *(hits.row_ids for hits in matches)])
    scores = np.concatenate([np.empty(0, dtype=np.float32), *(hits.scores for hits in matches)])
    matching = Ranked(counts, addresses, scores)
    fused = fuse((nearby, matching), request.fusion, request.weights, request.k)
    vector_ranks, text_ranks = fused.ranks
    computed = {
        DISTANCE: _values(-nearby.scores, fused.places[0]),
        SCORE: _values(matching.scores, fused.places[1]),
        VECTOR_RANK: pa.array(vector_ranks, mask=vector_ranks == ABSENT),
        TEXT_RANK: pa.array(text_ranks, mask=text_ranks == ABSENT),
        RELEVANCE: pa.array(fused.scores),
    }
    return rows_table(snapshot, request, fused.addresses, computed, fused.counts if many else None)


def _values(scores: npt.NDArray[np.float32], places: npt.NDArray[np.int64]) -> pa.Array:
    """What a list has for rows by their places in it, NULL for those that it lacks."""
    values = scores[places] if len(scores) else np.zeros(len(places), dtype=np.float32)
    return pa.array(values, pa.float32(), mask=places < 0)


def _listed(texts: Any) -> list[Any]:
    if isinstance(texts, str | Mapping) or not hasattr(texts, "__iter__"):
        raise InvalidArgument(f"search_hybrid_batch takes a list of texts, not {texts!r}", "For one use search_hybrid")
    return texts.to_pylist() if isinstance(texts, pa.Array | pa.ChunkedArray) else list(texts)
