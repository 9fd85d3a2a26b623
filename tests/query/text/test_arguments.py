"""What text searches take and refuse, and the tables they return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter, UnsupportedColumn, UnsupportedTable
from pennon.text import Boolean, Boost, Match, MultiMatch, Occur, Operator, Phrase

pytestmark = pytest.mark.usefixtures("process_engine")

TABLE = pa.table(
    {
        "id": range(5),
        "title": ["red fox", "blue fox", "green dog", "red dog", None],
        "body": ["the cat sat", "a fox in the sun", "fox and fox", "", "the red sun"],
        "number": range(5),
        "address": pa.array([{"city": city} for city in ("Rome", "Bern", "Rome Nord", None, "Oslo")]),
    }
)


@pytest.fixture
def table(tmp_path: Path) -> pennon.Table:
    lance.write_dataset(TABLE, str(tmp_path / "t.lance"), max_rows_per_file=3)
    opened = pennon.open(tmp_path / "t.lance")
    opened.create_index("title", "INVERTED")
    opened.create_index("body", "INVERTED", with_position=True)
    return opened


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def test_rows_come_with_their_scores_best_first(table: pennon.Table) -> None:
    found = table.search_text("body", "fox", k=2)
    assert found.schema.names == [*TABLE.schema.names, "_score"]
    assert found.schema.field("_score").type == pa.float32()
    assert found["id"].to_pylist() == [2, 1]
    assert table.search_text("body", "fox", columns=["_score", "id"]).schema.names == ["_score", "id"]
    names = table.search_text("body", "fox", columns=["id"], with_row_id=True, with_row_address=True).schema.names
    assert names == ["id", "_score", "_rowid", "_rowaddr"]
    empty = table.search_text("body", "nowhere")
    assert empty.schema == found.schema
    assert empty.num_rows == 0


def test_operator_fuzziness_and_filter(table: pennon.Table) -> None:
    assert ids(table.search_text("title", "red fox")) == [0, 1, 3]
    assert ids(table.search_text("title", "red fox", operator="AND")) == [0]
    assert ids(table.search_text("title", "fix", fuzziness=1)) == [0, 1]
    assert ids(table.search_text("title", "fix", fuzziness=1, prefix_length=2)) == []
    assert ids(table.search_text("title", "fix", fuzziness=3, max_expansions=1)) == [2, 3]  # dog comes before fox
    assert ids(table.search_text("title", "red fox", filter="id > 0")) == [1, 3]
    assert ids(table.search_text("title", "red fox", filter=pa.compute.field("id") > 0)) == [1, 3]


def test_quotes_make_a_phrase(table: pennon.Table) -> None:
    assert ids(table.search_text("body", '"red sun"')) == [4]
    assert ids(table.search_text("body", '"fox the sun"')) == []
    assert ids(table.search_text("body", '"fox in the sun"')) == [1]  # stop words keep their places
    assert ids(table.search_text("body", Phrase("fox sun", slop=2))) == [1]


def test_one_column_several_or_all_that_have_an_index(table: pennon.Table) -> None:
    assert ids(table.search_text(["title", "body"], "sun fox")) == [0, 1, 2, 4]
    assert ids(table.search_text(None, "sun fox")) == [0, 1, 2, 4]
    assert ids(table.search_text(None, Match("sun", "body") & Match("fox", "title"))) == [1]
    assert ids(table.search_text("body", Match("red") | Match("red", "title"))) == [0, 3, 4]
    assert ids(table.search_text("address.city", "Rome")) == [0, 2]  # no index: as it is written
    assert ids(table.search_text("address.city", "rome")) == []


def test_scans_return_all_matches(table: pennon.Table) -> None:
    assert table.scan(full_text="fox")["id"].to_pylist() == table.search_text(None, "fox", 100)["id"].to_pylist()
    assert ids(table.scan("id < 2", ["id"], full_text={"query": "fox", "columns": ["title"]})) == [0, 1]
    everything = table.scan(full_text="red fox sun")["id"].to_pylist()
    assert table.scan(full_text="red fox sun", limit=2, offset=1)["id"].to_pylist() == everything[1:3]
    assert table.scan(full_text="fox", limit=0).num_rows == 0
    for options in ({"order_by": ["id"]}, {"fragments": [0]}, {"columns": {"twice": "id * 2"}}):
        with pytest.raises(InvalidArgument, match="full_text"):
            table.scan(full_text="fox", **options)


@pytest.mark.parametrize("query", ["", "the", '"the"', '""', "   ", "!?", "the and"])
def test_queries_without_a_term_find_nothing(table: pennon.Table, query: str) -> None:
    assert table.search_text("body", query).num_rows == 0
    assert table.search_text_batch("body", [query, query]).num_rows == 0


def test_fast_search_leaves_out_uncovered_rows(table: pennon.Table) -> None:
    lance.write_dataset(TABLE, table.uri, mode="append")
    assert ids(table.refresh().search_text("title", "blue")) == [1, 1]
    assert ids(table.search_text("title", "blue", fast_search=True)) == [1]


def test_columns_that_are_not_there_or_hold_no_text(table: pennon.Table) -> None:
    with pytest.raises(ColumnNotFound, match="titel"):
        table.search_text("titel", "fox")
    with pytest.raises(UnsupportedColumn, match="number"):
        table.search_text("number", "1")
    with pytest.raises(ColumnNotFound, match="nothing"):
        table.search_text("title", "fox", columns=["nothing"])
    with pytest.raises(InvalidFilter):
        table.search_text("title", "fox", filter="nothing > 1")


def test_a_table_without_a_text_index(tmp_path: Path) -> None:
    lance.write_dataset(TABLE, str(tmp_path / "t.lance"))
    with pytest.raises(InvalidArgument, match="create_index"):
        pennon.open(tmp_path / "t.lance").search_text(None, "fox")


def test_a_phrase_needs_positions(table: pennon.Table) -> None:
    for query in ('"red fox"', Phrase("red"), Match("red") | Phrase("the")):
        with pytest.raises(InvalidArgument, match=r"title_idx.*no positions.*with_position=True"):
            table.search_text("title", query)
    with pytest.raises(InvalidArgument, match="one column"):
        table.search_text(None, '"red fox"')


def _call(**options: Any) -> Callable[[pennon.Table], object]:
    return lambda table: table.search_text(**{"column": "title", "query": "fox", **options})


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (_call(fuzziness=10**9), "fuzziness is 1000000000"),
        (_call(fuzziness=-1), "fuzziness is -1"),
        (_call(fuzziness="AUTO"), "fuzziness is 'AUTO'"),
        (_call(max_expansions=0), "max_expansions is 0"),
        (_call(prefix_length=1.5), "prefix_length is 1.5"),
        (_call(operator="xor"), "unknown operator 'xor'"),
        (_call(operator=7), "unknown operator 7"),
        (_call(k=0), "k must be"),
        (_call(k=True), "k must be"),
        (_call(limit=3), "no option 'limit'"),
        (_call(fast_search="yes"), "fast_search must be"),
        (_call(query=7), "not 7"),
        (_call(query=None), "not None"),
        (_call(query="\ud800"), "surrogate"),
        (_call(column=[]), "no column"),
        (_call(column=7), "columns takes a list"),
        (_call(query=Match("fox"), fuzziness=1), "fuzziness is for plain strings"),
        (_call(query='"fox"', operator="and"), "operator does not apply to a phrase"),
        (_call(query={"text": "fox"}), "is not a query"),
        (lambda table: table.search_text_batch("title", "fox"), "takes a list of queries"),
        (lambda _: Boolean([("must", Match("x"))]), "is not a clause"),  # type: ignore[list-item]
        (lambda _: Boolean([(Occur.MUST, "x")]), "is not a query"),  # type: ignore[list-item]
        (lambda _: Boost(Match("x"), Match("y"), float("nan")), "negative_boost"),
        (lambda _: MultiMatch("x", "title"), "list of columns"),  # type: ignore[arg-type]
        (lambda _: MultiMatch("x", ("a",), (-1.0,)), "boost is -1.0"),
    ],
)
def test_absurd_arguments_are_named(table: pennon.Table, call: Callable[[pennon.Table], object], problem: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        call(table)
    assert problem in str(raised.value)


@pytest.mark.parametrize("tokenizer", ["icu", "code"])
def test_an_index_that_pennon_cannot_reproduce(tmp_path: Path, tokenizer: str) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(TABLE, uri)
    lance.dataset(uri).create_scalar_index("title", "INVERTED", base_tokenizer=tokenizer)
    with pytest.raises(UnsupportedTable, match="title_idx") as raised:
        pennon.open(uri).search_text("title", "fox")
    assert "pylance" in str(raised.value)
    assert any(word in str(raised.value) for word in (tokenizer, "version 3"))


def test_queries_compose() -> None:
    assert Match("a", "x") & Match("b", "y") == Boolean([(Occur.MUST, Match("a", "x")), (Occur.MUST, Match("b", "y"))])
    assert Match("a").within(["x", "y"]) == MultiMatch("a", ["x", "y"], [1.0, 1.0])  # type: ignore[arg-type]
    assert Match("a", operator="AND").operator is Operator.AND  # type: ignore[arg-type]
    assert Boost(Match("a"), Match("b", "y")).within(["x"]) == Boost(Match("a", "x"), Match("b", "y"))
