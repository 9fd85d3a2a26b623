"""Hybrid searches: the fusion of what both searches find, by the rules of LanceDB and by hand."""

from __future__ import annotations

from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument
from tests.index.inverted.corpus import documents, vocabulary

WORDS = [word for word in vocabulary(3, 250) if word.isascii()]
ROWS, DIM = 400, 8


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "stable"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("hybrid") / "t.lance")
    vectors = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    rows = pa.table({"id": range(ROWS), "v": column, "text": pa.array(documents(ROWS, 3, 250), pa.string())})
    lance.write_dataset(rows, path, max_rows_per_file=100, enable_stable_row_ids=request.param)
    table = pennon.open(path, engine="local")
    table.create_index("v", "IVF_FLAT", num_partitions=4)
    table.create_index("text", "INVERTED", fragment_ids=[0, 1, 2])
    lance.dataset(path).delete("id % 10 = 3")
    return path


def query(number: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(100 + number).standard_normal(DIM).astype(np.float32)


def ranks(found: pa.Table) -> dict[int, int]:
    return {id: rank for rank, id in enumerate(found["id"].to_pylist(), 1)}


@pytest.mark.parametrize("filter", [None, "id % 2 = 0"])
@pytest.mark.parametrize("candidates", [None, 30])
def test_reciprocal_rank_fusion(uri: str, filter: str | None, candidates: int | None) -> None:
    table, k, words = pennon.open(uri), 10, f"{WORDS[0]} {WORDS[9]}"
    options: dict[str, Any] = {"filter": filter, "nprobes": 4}
    found = table.search_hybrid(("v", query()), ("text", words), k, candidates=candidates, columns=["id"], **options)
    names = ["id", "_distance", "_score", "_vector_rank", "_text_rank", "_relevance_score"]
    assert found.schema.names == names
    nearest = table.search("v", query(), candidates or k, columns=["id"], **options)
    best = table.search_text("text", words, candidates or k, columns=["id"], filter=filter)
    by_vector, by_text = ranks(nearest), ranks(best)
    scores = {
        id: sum(1 / (60 + rank[id]) for rank in (by_vector, by_text) if id in rank) for id in {*by_vector, *by_text}
    }
    expected = sorted(scores, key=lambda id: (-np.float32(scores[id]), by_vector.get(id, 999), by_text.get(id, 999)))
    assert found["id"].to_pylist() == expected[:k]
    np.testing.assert_allclose(found["_relevance_score"].to_numpy(), [scores[id] for id in expected[:k]], rtol=1e-6)
    distances = dict(zip(nearest["id"].to_pylist(), nearest["_distance"].to_pylist(), strict=True))
    matches = dict(zip(best["id"].to_pylist(), best["_score"].to_pylist(), strict=True))
    for row in found.to_pylist():
        assert row["_vector_rank"] == by_vector.get(row["id"])
        assert row["_text_rank"] == by_text.get(row["id"])
        assert row["_distance"] == pytest.approx(distances.get(row["id"]))
        assert row["_score"] == pytest.approx(matches.get(row["id"]))


def test_linear_fusion(uri: str) -> None:
    table = pennon.open(uri)
    options: dict[str, Any] = {"columns": ["id"], "nprobes": 4, "candidates": 20, "fusion": "linear"}
    found = table.search_hybrid(("v", query()), ("text", WORDS[0]), 40, weights=(0.2, 0.6), **options).to_pylist()
    distances = [row["_distance"] for row in found if row["_distance"] is not None]
    scores = [row["_score"] for row in found if row["_score"] is not None]
    assert len(distances) == len(scores) == 20
    for row in found:
        total = 0.0
        if row["_distance"] is not None:
            total += 0.2 * (max(distances) - row["_distance"]) / (max(distances) - min(distances))
        if row["_score"] is not None:
            total += 0.6 * (row["_score"] - min(scores)) / (max(scores) - min(scores))
        assert row["_relevance_score"] == pytest.approx(total, abs=1e-6)
    assert [row["_relevance_score"] for row in found] == sorted((r["_relevance_score"] for r in found), reverse=True)


def test_words_alone_or_vectors_alone(uri: str) -> None:
    table = pennon.open(uri)
    none = table.search_hybrid(("v", query()), ("text", "nowhere"), 5, columns=["id"], nprobes=4)
    assert none["id"].to_pylist() == table.search("v", query(), 5, columns=["id"], nprobes=4)["id"].to_pylist()
    assert none["_score"].null_count == none["_text_rank"].null_count == 5
    text = table.search_hybrid(("v", query()), ("text", WORDS[0]), 5, columns=["id"], weights=(0, 1), candidates=9)
    best = table.search_text("text", WORDS[0], 5, columns=["id"])
    assert text["id"].to_pylist() == best["id"].to_pylist()
    assert table.search_hybrid(("v", query()), ("text", "x"), filter="id < 0").num_rows == 0


def test_a_batch_finds_what_single_searches_find(uri: str) -> None:
    table = pennon.open(uri)
    vectors, texts = [query(n) for n in range(6)], [WORDS[n] for n in range(6)]
    options: dict[str, Any] = {"columns": ["id"], "nprobes": 4, "filter": "id > 40"}
    batch = table.search_hybrid_batch(("v", np.stack(vectors)), ("text", texts), 7, **options)
    for number in range(6):
        one = table.search_hybrid(("v", vectors[number]), ("text", texts[number]), 7, **options)
        own = batch.filter(pa.compute.equal(batch["query_index"], number)).drop_columns(["query_index"])
        assert own["id"].to_pylist() == one["id"].to_pylist()
        np.testing.assert_allclose(own["_relevance_score"], one["_relevance_score"], rtol=1e-6)
    assert table.search_hybrid_batch(("v", []), ("text", [])).num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"fusion": "sum"}, "unknown fusion 'sum'"),
        ({"weights": (1, 2, 3)}, "weights"),
        ({"weights": (0, 0)}, "weights"),
        ({"weights": (-1, 1)}, "weights"),
        ({"weights": "x"}, "weights"),
        ({"k": 0}, "k must be"),
        ({"candidates": 0}, "candidates must be"),
        ({"limit": 3}, "no option 'limit'"),
        ({"text": "words"}, "text takes a column and a query"),
        ({"vector": ("v", [1.0])}, "items"),
        ({"text": ("text", 5)}, "not 5"),
        ({"fuzziness": 99}, "fuzziness is 99"),
    ],
)
def test_absurd_arguments_are_named(uri: str, arguments: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {"vector": ("v", query()), "text": ("text", WORDS[0]), **arguments}
    with pytest.raises(InvalidArgument, match=problem):
        pennon.open(uri).search_hybrid(**given)


def test_a_batch_needs_a_text_for_each_vector(uri: str) -> None:
    with pytest.raises(InvalidArgument, match="2 vectors have 1 texts"):
        pennon.open(uri).search_hybrid_batch(("v", [query(), query()]), ("text", ["x"]))
    with pytest.raises(InvalidArgument, match="list of texts"):
        pennon.open(uri).search_hybrid_batch(("v", [query()]), ("text", "x"))


def test_recall_is_that_of_the_vector_search(uri: str) -> None:
    table = pennon.open(uri)
    options: dict[str, Any] = {"columns": ["id"], "candidates": 20}
    exact = table.search_hybrid(("v", query()), ("text", WORDS[0]), nprobes=4, **options)["id"]
    assert table.search_hybrid(("v", query()), ("text", WORDS[0]), recall=1.0, **options)["id"] == exact
    batch = table.search_hybrid_batch(("v", [query()]), ("text", [WORDS[0]]), recall=1.0, **options)
    assert batch["id"] == exact
    for wrong, problem in (({"recall": 2}, "recall must be"), ({"recall": 0.9, "nprobes": 2}, "recall sets nprobes")):
        with pytest.raises(InvalidArgument, match=problem):
            table.search_hybrid(("v", query()), ("text", WORDS[0]), **options, **wrong)
