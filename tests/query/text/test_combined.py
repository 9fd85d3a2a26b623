"""Several columns as one field: the rows and scores of pylance, through deletions, appends and filters."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.query import CombinedFieldsQuery, FullTextOperator

import pennon
from pennon.errors import InvalidArgument
from pennon.text import Boolean, CombinedFields, Match, Occur
from tests.query.text.checks import TOLERANCE, by_pylance, everything

pytestmark = pytest.mark.usefixtures("process_engine")

WORDS = ["fox", "dog", "cat", "sun", "moon", "bird", "running", "the", "Stone"]
COLUMNS = ("a", "b")


def rows(start: int, count: int, seed: int = 0) -> pa.Table:
    draw = random.Random(seed + start)

    def text(nulls: float) -> str | None:
        words = draw.choices(WORDS, weights=range(len(WORDS), 0, -1), k=draw.randint(0, 9))
        return None if draw.random() < nulls else " ".join(words)

    columns = {name: [text(nulls) for _ in range(count)] for name, nulls in (("a", 0.1), ("b", 0.5), ("c", 0.0))}
    return pa.table({"id": range(start, start + count), **columns})


def compare(uri: str, seed: int = 0, columns: tuple[str, ...] = COLUMNS, filter: str | None = None) -> None:
    draw, table, dataset = random.Random(seed), pennon.open(uri), lance.dataset(uri)
    scanner = {} if filter is None else {"filter": filter, "prefilter": True}
    matches = 0
    for _ in range(12):
        text = " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))
        boosts = draw.choice([None, tuple(draw.choice([1.0, 1.5, 3.0]) for _ in columns)])
        operator = draw.choice(["or", "and"])
        query = CombinedFields(text, columns, boosts, operator)  # type: ignore[arg-type]
        other = CombinedFieldsQuery(
            text,
            list(columns),
            boosts=None if boosts is None else list(boosts),
            operator=FullTextOperator[operator.upper()],
        )
        found = everything(table, query, filter=filter)
        expected = by_pylance(dataset, other, **scanner)
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), query
        best = table.search_text(None, query, 4, filter=filter, columns=["id"])
        assert best["_score"].to_pylist() == pytest.approx(sorted(found.values(), reverse=True)[:4], rel=TOLERANCE)
        matches += len(found)
    assert matches > 50


@pytest.mark.parametrize("maker", ["pylance", "pennon"])
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_as_pylance_through_the_life_of_a_table(tmp_path: Path, maker: str, stable: bool) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 120), uri, max_rows_per_file=40, enable_stable_row_ids=stable)
    for column in COLUMNS:
        if maker == "pylance":
            lance.dataset(uri).create_scalar_index(column, "INVERTED")
        else:
            pennon.open(uri).create_index(column, "INVERTED", rows_per_task=50)
    compare(uri)
    lance.dataset(uri).delete("id % 7 = 2")
    compare(uri, 1)
    compare(uri, 2, filter="id % 3 = 1")
    lance.write_dataset(rows(120, 60), uri, mode="append")
    compare(uri, 3)
    compare(uri, 4, filter="id % 2 = 1")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    compare(uri, 5)


def test_columns_that_are_covered_in_part_or_not_at_all(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 120), uri, max_rows_per_file=40)
    for column, fragments in (("a", [0, 1]), ("b", [1, 2])):
        pennon.open(uri).create_index(column, "INVERTED", fragment_ids=fragments)
    compare(uri)
    compare(uri, 1, columns=("a", "b", "c"))
    compare(uri, 2, columns=("c", "b"), filter="id > 30")


def test_in_other_queries_in_batches_and_in_plans(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 90), uri, max_rows_per_file=40)
    table = pennon.open(uri)
    for column in COLUMNS:
        table.create_index(column, "INVERTED", fragment_ids=[0, 1])
    both = CombinedFields("fox moon", COLUMNS, (2.0, 1.0))
    bird = Match("bird", "a")
    either = everything(table, both)
    found = everything(table, Boolean([(Occur.MUST, both), (Occur.MUST_NOT, bird)]))
    assert found == {row: score for row, score in either.items() if row not in everything(table, bird)}
    batch = table.search_text_batch(None, [both, bird, CombinedFields("sun", COLUMNS)], 3, columns=["id"])
    for number, query in enumerate((both, bird, CombinedFields("sun", COLUMNS))):
        own = batch.filter(pa.compute.equal(batch["query_index"], number))
        assert own["id"].to_pylist() == table.search_text(None, query, 3)["id"].to_pylist()
    plan: Any = table.explain_search_text(None, both, analyze=True)
    assert [set(column.terms) for column in plan.columns] == [{"fox", "moon"}] * 2
    assert plan.rows_returned == 10
    assert "CombinedFields('fox moon', ('a', 'b'), boosts=(2.0, 1.0))" in str(table.explain_search_text(None, both))


def test_what_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 20), uri)
    table = pennon.open(uri)
    with pytest.raises(InvalidArgument, match="none of the combined columns has an inverted index"):
        table.search_text(None, CombinedFields("fox", COLUMNS))
    table.create_index("a", "INVERTED", stem=True)
    table.create_index("b", "INVERTED", stem=False)
    with pytest.raises(InvalidArgument, match="analyze text in different ways"):
        table.search_text(None, CombinedFields("fox", COLUMNS))
    for wrong in (
        {"columns": ()},
        {"columns": "a"},
        {"boosts": (0.5, 1.0)},
        {"boosts": (1.0,)},
        {"columns": ("a", "a")},
    ):
        with pytest.raises(InvalidArgument):
            CombinedFields(**{"text": "fox", "columns": COLUMNS, **wrong})  # type: ignore[arg-type]
