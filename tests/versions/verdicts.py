"""What a pylance makes of an index: it uses it, passes it over, or refuses; and that its answer is never wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lance
import numpy as np

from pennon.index.vector.vectors import to_matrix
from tests.support.tables import UNSERVED, full_scan
from tests.support.vectors import clustered
from tests.versions.layouts import DIM, PARTITIONS, K, VectorColumn
from tests.versions.versions import Stock

USES, USES_FOR_SOME, SCANS, REFUSES = "uses", "uses for some filters", "scans", "refuses"
# Two versions add up the same codes in other orders and round otherwise.
RECALL_LOST = 0.02
QUERIES = 20


@dataclass(frozen=True)
class Verdict:
    """`wrong` lists answers that are not right, whatever was used; `said` is the error of a refusal."""

    does: str
    wrong: tuple[str, ...] = ()
    said: str = ""


def expected_of_trees(stock: Stock, form: str) -> Verdict:
    """Since 14, trees of tables with stable row ids hold addresses, and say so by their version. Older releases know
    ids only: they pass such a tree over."""
    return Verdict(SCANS if form.endswith("stable row ids") and stock.path else USES)


def all_are(expected: Verdict, found: Mapping[str, Verdict]) -> None:
    are(dict.fromkeys(found, expected), found)


def are(expected: Mapping[str, Verdict], found: Mapping[str, Verdict]) -> None:
    """Nothing wrong, and every index used or refused as expected."""
    others = {name: verdict for name, verdict in found.items() if replace(verdict, said="") != expected[name]}
    assert not others, others


def on_filters(stock: Stock, uri: str, filters: Mapping[str, Sequence[str]]) -> dict[str, Verdict]:
    """For each column, stock's answers beside the full scan of the installed pylance, and beside its own."""
    requests = [{"verb": "filters", "uri": uri, "filters": list(some)} for some in filters.values()]
    return dict(zip(filters, (_of_filters(uri, found) for found in stock.try_all(*requests)), strict=True))


def on_neighbors(stock: Stock, installed: Stock, uri: str, columns: Sequence[VectorColumn]) -> dict[str, Verdict]:
    """For each column, stock's recall beside that of the installed pylance on the same index; without an index it has
    to be exact."""
    queries = asked()
    requests = [nearest(uri, column, queries) for column in columns]
    answers = zip(columns, stock.try_all(*requests), installed.try_all(*requests), strict=True)
    return {column.name: _of_neighbors(uri, column, own, reference) for column, own, reference in answers}


def nearest(uri: str, column: VectorColumn, queries: np.ndarray) -> dict[str, Any]:
    options = {"metric": column.metric}
    named = {"verb": "nearest", "uri": uri, "column": column.name, "options": options}
    return named | {"queries": queries.tolist(), "k": K, "nprobes": PARTITIONS}


def asked() -> np.ndarray:
    noise = np.random.default_rng(5).standard_normal((QUERIES, DIM))
    return (clustered(QUERIES, DIM) + 0.3 * noise).astype(np.float32)


def true_neighbors(uri: str, column: VectorColumn, queries: np.ndarray) -> list[set[int]]:
    rows = lance.dataset(uri).to_table(columns=["id", column.name])
    vectors = to_matrix(rows[column.name].combine_chunks())[0].astype(np.float64)
    queries = queries.astype(np.float64)
    if column.metric == "cosine":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    distances = (vectors**2).sum(axis=1) - 2 * queries @ vectors.T
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :K]
    return [set(found) for found in rows["id"].to_numpy()[nearest].tolist()]


def recall(found: list[list[int]], truth: list[set[int]]) -> float:
    return sum(len(set(ids) & near) for ids, near in zip(found, truth, strict=True)) / sum(map(len, truth))


def _of_filters(uri: str, found: dict[str, Any]) -> Verdict:
    if "error" in found:
        return Verdict(REFUSES, said=found["error"])
    wrong: list[str] = []
    for answer in found["answer"]:
        expected = full_scan(uri, answer["filter"])
        if not answer["ids"] == answer["scanned"] == expected or answer["count"] != len(expected):
            sizes = f"{len(answer['ids'])}, {answer['count']} counted, {len(answer['scanned'])} scanned"
            wrong.append(f"{answer['filter']}: {sizes}, expected {len(expected)}")
    used = {answer["used"] for answer in found["answer"] if answer["filter"] not in UNSERVED}
    return Verdict({(True,): USES, (False,): SCANS}.get(tuple(used), USES_FOR_SOME), tuple(wrong))


def _of_neighbors(uri: str, column: VectorColumn, found: dict[str, Any], reference: dict[str, Any]) -> Verdict:
    if "error" in found:
        return Verdict(REFUSES, said=found["error"])
    truth = true_neighbors(uri, column, asked())
    own = recall(found["answer"]["ids"], truth)
    least = recall(reference["answer"]["ids"], truth) - RECALL_LOST if found["answer"]["used"] else 0.999
    wrong = () if own >= least else (f"{column.name}: recall {own:.3f}, expected {least:.3f}",)
    return Verdict(USES if found["answer"]["used"] else SCANS, wrong)
