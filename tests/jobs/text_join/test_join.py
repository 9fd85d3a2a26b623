"""A text join finds for every row of a DataFrame what a search for its query finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pandas as pd
import pyarrow as pa
import pytest

import pennon
from pennon.errors import ColumnNotFound, IndexNotFound, InvalidArgument, InvalidFilter, SparkUnavailable
from pennon.jobs.shared.frame_join import added_columns
from pennon.jobs.text_join.join import plan_text_join, search, with_columns
from pennon.query.text.request import SCORE, TextRequest, words_of
from tests.index.inverted.corpus import COLUMN, documents, vocabulary
from tests.support.frames import frame_of, rows_of

WORDS = [word for word in vocabulary(3, 250) if word.isascii()]
QUERIES = [f"{WORDS[n]} {WORDS[2 * n]}" for n in range(20)]
QUERIES += [None, "", "the", "in no document", WORDS[0], f"{WORDS[1]} {WORDS[1]}", " ".join(WORDS[:12])]
ASKED = pa.table({"number": pa.array(range(len(QUERIES)), pa.int64()), "q": pa.array(QUERIES, pa.string())})


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two segments, deleted rows, and a fragment that no segment covers."""
    path = str(tmp_path_factory.mktemp("join") / "t.lance")
    rows = pa.table({"id": range(600), COLUMN: pa.array(documents(600, 3, 250), pa.string())})
    lance.write_dataset(rows, path, max_rows_per_file=150)
    for fragments in ([0, 1], [2]):
        pennon.open(path, engine="local").create_index(
            COLUMN, "INVERTED", "words", with_position=True, fragment_ids=fragments
        )
    lance.dataset(path).delete("id % 7 = 1")
    return path


def join(uri: str, asked: pa.Table, k: int, *, memory: int = 1 << 30, batch: int = 7, **options: Any) -> list[Any]:
    """What a task returns, without Spark: number, rank, score and id of each match."""
    catalog = pennon.open(uri, engine="local")._indices()  # pyright: ignore[reportPrivateUsage]
    request = with_columns(catalog.snapshot, TextRequest.of(k, {"columns": ["id"], **options}))
    plan = plan_text_join(catalog, request, COLUMN, "q", words_of(options), memory)
    added = added_columns(catalog.snapshot, pa.field(SCORE, pa.float32()), request.columns or (), "")
    found = []
    for some in search(plan, added, iter(asked.to_batches(max_chunksize=batch))):
        for row in some.to_pylist():
            found += [(row["number"], match["_rank"], match[SCORE], match["id"]) for match in row["_matches"]]
    return found


def one_by_one(uri: str, asked: pa.Table, k: int, **options: Any) -> list[Any]:
    table, found = pennon.open(uri, engine="local"), []
    for row in asked.to_pylist():
        if row["q"] is not None:
            best = table.search_text(COLUMN, row["q"], k, **{"columns": ["id"], **options})
            pairs = zip(best[SCORE].to_pylist(), best["id"].to_pylist(), strict=True)
            found += [(row["number"], rank, *pair) for rank, pair in enumerate(pairs, 1)]
    return found


def check(found: list[Any], expected: list[Any]) -> None:
    assert [(number, rank, id_) for number, rank, _, id_ in found] == [(n, r, i) for n, r, _, i in expected]
    assert [score for *_, score, _ in found] == pytest.approx([score for *_, score, _ in expected], rel=1e-5)
    assert len(found) > 10


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"filter": "id % 3 = 0"},
        {"operator": "and"},
        {"fuzziness": 1, "max_expansions": 5, "prefix_length": 1},
        {"fast_search": True},
        {"index": "words"},
    ],
    ids=str,
)
def test_a_row_has_the_matches_of_its_query(uri: str, options: dict[str, Any]) -> None:
    check(join(uri, ASKED, 4, **options), one_by_one(uri, ASKED, 4, **options))


def test_phrases(uri: str) -> None:
    phrases = [f'"{a} {b}"' for a in WORDS[:6] for b in WORDS[:6]]
    asked = pa.table({"number": range(len(phrases)), "q": phrases})
    check(join(uri, asked, 3), one_by_one(uri, asked, 3))


def test_blocks_of_any_size(uri: str, tmp_path: Path) -> None:
    whole = str(tmp_path / "t.lance")
    lance.write_dataset(pennon.open(uri, engine="local").scan(), whole, max_rows_per_file=200)
    pennon.open(whole, engine="local").create_index(COLUMN, "INVERTED")
    expected = one_by_one(whole, ASKED, 5)
    # The first budget holds no two posting lists together, and its blocks have a single query.
    for memory, batch in ((2000, 3), (60_000, 5), (1 << 30, 100)):
        check(join(whole, ASKED, 5, memory=memory, batch=batch), expected)


def test_the_version_is_that_of_the_plan(uri: str) -> None:
    catalog = pennon.open(uri, engine="local")._indices()  # pyright: ignore[reportPrivateUsage]
    plan = plan_text_join(catalog, TextRequest(k=3), COLUMN, "q", {}, 1 << 30)
    assert plan.pin.version == catalog.snapshot.version
    before = plan.open().best(pa.array([WORDS[0]]))[0]
    lance.dataset(uri).delete(f"id = {lance.dataset(uri)._take_rows(before.row_ids[:1].tolist())['id'][0].as_py()}")
    again = plan_text_join(catalog, TextRequest(k=4), COLUMN, "q", {}, 1 << 30)
    assert again.open().best(pa.array([WORDS[0]]))[0].row_ids[:3].tolist() == before.row_ids.tolist()
    lance.dataset(uri, version=plan.pin.version).restore()


def test_on_spark(spark: Any, uri: str) -> None:
    frame = frame_of(spark, ASKED).repartition(3)
    table = pennon.open(uri)
    joined = table.text_join(frame, COLUMN, "q", 4, columns=["id", "_rowid"], filter="id > 20", prefix="t_")
    assert joined.columns == ["number", "q", "_rank", SCORE, "t_id", "t__rowid"]
    found = rows_of(joined.orderBy("number", "_rank"))
    check(
        list(zip(*(found[name].to_pylist() for name in ("number", "_rank", SCORE, "t_id")), strict=True)),
        one_by_one(uri, ASKED, 4, filter="id > 20"),
    )
    kept = table.text_join(frame, COLUMN, "q", 1, how="left", columns=["id"])
    assert kept.count() == len(QUERIES)
    assert {row.q for row in kept.where("id is null").collect()} == {None, "", "the", "in no document"}
    lazily = table.text_join(frame, [COLUMN], "q", 2).select("number")
    assert lazily.count() == len(one_by_one(uri, ASKED, 2))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "problem"),
    [
        ((COLUMN, "nothing"), {}, ColumnNotFound, "no column 'nothing'"),
        (("nothing", "q"), {}, ColumnNotFound, "no column 'nothing'"),
        ((COLUMN, "number"), {}, InvalidArgument, "type bigint, and queries are strings"),
        (([COLUMN],), {}, InvalidArgument, "query_column="),
        ((COLUMN, "q", 0), {}, InvalidArgument, "k must be"),
        ((COLUMN, "q"), {"how": "right"}, InvalidArgument, "unknown how='right'. Use one of: inner, left"),
        ((COLUMN, "q"), {"index": "nothing"}, IndexNotFound, "nothing"),
        ((COLUMN, "q"), {"filter": "id >"}, InvalidFilter, "filter"),
        ((COLUMN, "q"), {"fuzziness": 99}, InvalidArgument, "fuzziness"),
        ((COLUMN, "q"), {"metric": "l2"}, InvalidArgument, "no option 'metric'"),
        ((COLUMN, "q"), {"columns": ["id"], "prefix": "_ran"}, None, ""),
        ((COLUMN, "q"), {"columns": [COLUMN, "id"], "task_memory_bytes": 5}, InvalidArgument, "too little"),
    ],
    ids=str,
)
def test_errors_come_before_spark_works(
    spark: Any, uri: str, arguments: tuple[Any, ...], options: dict[str, Any], error: Any, problem: str
) -> None:
    frame, table = frame_of(spark, ASKED), pennon.open(uri)
    if error is None:
        table.text_join(frame, *arguments, **options)
        return
    with pytest.raises(error, match=problem):
        table.text_join(frame, *arguments, **options)


def test_columns_of_both_sides_have_different_names(spark: Any, uri: str) -> None:
    frame = frame_of(spark, ASKED).withColumnRenamed("q", COLUMN.upper())
    with pytest.raises(InvalidArgument, match=f"two columns '{COLUMN.upper()}'"):
        pennon.open(uri).text_join(frame, COLUMN, COLUMN.upper())
    assert pennon.open(uri).text_join(frame, COLUMN, COLUMN.upper(), prefix="t_").columns[-1] == f"t_{COLUMN}"


def test_only_dataframes_of_spark(uri: str) -> None:
    with pytest.raises(InvalidArgument, match=r"text_join takes a Spark DataFrame, not pandas.*search_text_batch"):
        pennon.open(uri).text_join(pd.DataFrame({COLUMN: ["x"]}), COLUMN)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SparkUnavailable, match="text_join works on Spark DataFrames"):
        pennon.open(uri, engine="local").text_join(pd.DataFrame(), COLUMN)  # pyright: ignore[reportArgumentType]
