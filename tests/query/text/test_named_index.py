"""Matches counted and in batches, and one of several indices on a column by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import IndexNotFound, InvalidArgument
from pennon.index.vector.vectors import to_lists
from pennon.text import Match

pytestmark = pytest.mark.usefixtures("process_engine")

TEXTS = ["Running foxes", "a fox runs", "the dog ran", None, "run, dog, run", "a Fox"] * 5


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("named") / "t.lance")
    vectors = to_lists(np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32))
    lance.write_dataset(pa.table({"id": range(30), "body": TEXTS, "v": vectors}), path, max_rows_per_file=8)
    table = pennon.open(path, engine="local")
    table.create_index("body", "INVERTED", "stems")
    table.create_index("body", "INVERTED", "words", stem=False, fragment_ids=[0, 1, 2])
    table.create_index("id", "BTREE", "numbers")
    table.create_index("v", "IVF_FLAT", "near", num_partitions=1)
    return path


def with_word(*words: str) -> list[int]:
    return [n for n, text in enumerate(TEXTS) if set(words) & set((text or "").lower().replace(",", "").split())]


STEMMED, WRITTEN = with_word("run", "runs", "running"), with_word("run")


def test_the_named_index_analyzes_the_query(uri: str) -> None:
    table = pennon.open(uri)

    def ids(**options: Any) -> list[int]:
        return sorted(table.search_text("body", "run", 30, **options)["id"].to_pylist())

    assert ids() == ids(index="stems") == STEMMED
    assert ids(index="words") == WRITTEN
    batch = table.search_text_batch("body", ["run", "foxes"], 30, index="words")
    assert sorted(batch["id"].to_pylist()) == sorted(WRITTEN + with_word("foxes"))
    assert sorted(table.scan(full_text="run", index="words")["id"].to_pylist()) == WRITTEN
    assert table.count(full_text="run", index="words") == len(WRITTEN)
    assert table.count("id < 10", full_text="run") == len([n for n in STEMMED if n < 10])
    for explained in (
        table.explain_search_text("body", "run", index="words"),
        table.explain(full_text="run", index="words"),
        table.explain(full_text="run", index="words", analyze=True),
    ):
        assert [column.index for column in explained.columns] == ["words"]
    query = np.zeros(4, dtype=np.float32)
    both = table.search_hybrid(("v", query), ("body", "run"), 30, text_index="words", vector_index="near")
    found = both.filter(pa.compute.is_valid(both["_score"]))
    assert sorted(found["id"].to_pylist()) == WRITTEN


@pytest.mark.parametrize(
    ("name", "error", "problem"),
    [
        ("missing", IndexNotFound, "missing"),
        (
            "numbers",
            InvalidArgument,
            r"'numbers' is not a text index on a column that is searched: 'body'.*stems, words",
        ),
        (7, InvalidArgument, "index must be"),
    ],
)
def test_names_that_are_refused(uri: str, name: Any, error: type[Exception], problem: str) -> None:
    table = pennon.open(uri)
    for search in (
        lambda: table.search_text("body", "run", index=name),
        lambda: table.search_text_batch("body", ["run"], index=name),
        lambda: table.scan(full_text="run", index=name),
        lambda: table.count(full_text="run", index=name),
        lambda: list(table.scan_batches(full_text="run", index=name)),
        lambda: table.explain(full_text="run", index=name),
        lambda: table.search_hybrid(("v", [0, 0, 0, 0]), ("body", "run"), text_index=name),
    ):
        with pytest.raises(error, match=problem):
            search()


def test_an_index_is_named_for_texts_only(uri: str) -> None:
    table = pennon.open(uri)
    for read in (lambda: table.scan("id < 3", index="numbers"), lambda: table.count("id < 3", index="numbers")):
        with pytest.raises(InvalidArgument, match="index='numbers' is for full_text"):
            read()
    with pytest.raises(InvalidArgument, match="full_text"):
        table.scan_batches(index="numbers")


def test_matches_in_batches(uri: str) -> None:
    table = pennon.open(uri)
    every = table.scan(columns=["id"], full_text=Match("run fox", "body"))
    batches = list(table.scan_batches(columns=["id"], full_text=Match("run fox", "body"), batch_size=4))
    assert pa.Table.from_batches(batches) == every
    assert {batch.num_rows for batch in batches[:-1]} == {4}
    some = list(table.scan_batches("id > 3", ["id"], full_text="run fox", limit=3, offset=2))
    assert pa.Table.from_batches(some) == table.scan("id > 3", ["id"], full_text="run fox", limit=3, offset=2)
    assert sum(batch.num_rows for batch in table.scan_batches(full_text="nowhere")) == 0
    with pytest.raises(InvalidArgument, match="order_by"):
        list(table.scan_batches(full_text="run", order_by=["id"]))
    with pytest.raises(InvalidArgument, match="batch_size"):
        list(table.scan_batches(full_text="run", batch_size=0))


def test_counts(uri: str, tmp_path: Path) -> None:
    table = pennon.open(uri)
    dataset = lance.dataset(uri)
    for query in ("run", "fox dog", "nowhere"):
        # pylance takes the first index of a column.
        expected = dataset.scanner(columns=["id"], full_text_query=query).to_table().num_rows
        assert table.count(full_text=query, index="stems") == expected
    assert table.count() == 30
