"""Many queries at once: the rows and scores of one after another, with everything read once."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.index.cache import SHARED_CACHE
from pennon.text import Match, Phrase
from tests.index.inverted.corpus import COLUMN, documents, vocabulary

pytestmark = pytest.mark.usefixtures("process_engine")

WORDS = [word for word in vocabulary(3, 250) if word.isascii()]


# Fragments of each segment. Without the last one a part of the table is scanned; otherwise kernels take many queries.
SEGMENTS = {"in part": ([0, 1],), "two segments": ([0, 1], [2])}


@pytest.fixture(scope="module", params=[(name, stable) for name in SEGMENTS for stable in (False, True)], ids=str)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    covered, stable = request.param
    path = str(tmp_path_factory.mktemp("batch") / "t.lance")
    rows = pa.table({"id": range(600), COLUMN: pa.array(documents(600, 3, 250), pa.string())})
    lance.write_dataset(rows, path, max_rows_per_file=200, enable_stable_row_ids=stable)
    for fragments in SEGMENTS[covered]:
        table = pennon.open(path, engine="local")
        table.create_index(COLUMN, "INVERTED", "words", with_position=True, fragment_ids=fragments)
    lance.dataset(path).delete("id % 7 = 1")
    return path


@pytest.mark.parametrize("options", [{}, {"filter": "id % 3 = 0"}, {"operator": "and"}, {"fuzziness": 1}])
def test_a_batch_finds_what_single_searches_find(uri: str, options: dict[str, object]) -> None:
    table = pennon.open(uri)
    queries = [f"{WORDS[n]} {WORDS[2 * n]}" for n in range(20)]
    queries += [WORDS[0], f"{WORDS[1]} {WORDS[1]}", "", "the", "in no document", " ".join(WORDS[:12])]
    if not options:
        queries = [
            *queries,
            Match(f"{WORDS[0]} {WORDS[5]}", boost=2.5),
            Match(f"{WORDS[0]} {WORDS[1]}", operator="and"),
            f'"{WORDS[0]} {WORDS[1]}"',
            Match(WORDS[3]) & Match(WORDS[4]),
            Phrase(WORDS[2]),
        ]
    batch = table.search_text_batch(COLUMN, queries, 5, columns=["id"], **options)  # type: ignore[arg-type]
    assert batch.schema.names == ["query_index", "id", "_score"]
    assert batch["query_index"].to_pylist() == sorted(batch["query_index"].to_pylist())
    for number, query in enumerate(queries):
        one = table.search_text(COLUMN, query, 5, columns=["id"], **options)  # type: ignore[arg-type]
        own = batch.filter(pa.compute.equal(batch["query_index"], number))
        assert own["id"].to_pylist() == one["id"].to_pylist()
        assert own["_score"].to_pylist() == pytest.approx(one["_score"].to_pylist(), rel=1e-5)


def test_every_match_is_found_where_k_is_more_than_there_are(uri: str) -> None:
    table = pennon.open(uri)
    batch = table.search_text_batch(COLUMN, WORDS[:3], 10_000, columns=["id"])
    expected = [len(table.scan(full_text={"query": word, "columns": [COLUMN]}, columns=["id"])) for word in WORDS[:3]]
    assert [batch["query_index"].to_pylist().count(number) for number in range(3)] == expected


def test_posting_lists_are_read_once_for_all_queries(uri: str) -> None:
    SHARED_CACHE.clear()
    many, one = ReadCounter(), ReadCounter()
    with counting_reads(many):
        pennon.open(uri).search_text_batch(COLUMN, [WORDS[0]] * 40)
    SHARED_CACHE.clear()
    with counting_reads(one):
        pennon.open(uri).search_text(COLUMN, WORDS[0])
    assert many.reads == one.reads > 0


def test_no_queries(uri: str) -> None:
    found = pennon.open(uri).search_text_batch(COLUMN, [])
    assert found.num_rows == 0
    assert found.schema.names == ["query_index", "id", COLUMN, "_score"]
    queries = pa.array([WORDS[0], WORDS[1]])
    assert set(pennon.open(uri).search_text_batch(COLUMN, queries)["query_index"].to_pylist()) == {0, 1}  # type: ignore[arg-type]
