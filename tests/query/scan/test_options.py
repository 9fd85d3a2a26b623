"""Options of a scan return the rows that pylance's scanner returns for the same arguments."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.dataset import ColumnOrdering

import pennon
from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter

ROWS = 400
FILTERS = [None, "k = 3", "k = 3 AND id > 50", "k = 3 OR id > 390", "k < 4", "id % 2 = 0", "k = 77"]


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def uri(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """Five fragments with deleted rows, of which an index covers the first three."""
    path = str(tmp_path_factory.mktemp("options") / "table.lance")
    numbers = range(ROWS)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "k": pa.array([None if n % 11 == 0 else n % 7 for n in numbers], pa.int32()),
            "price": pa.array([(n * 37 % 101) / 4 for n in numbers]),
            "inner": pa.array([{"x": n % 5, "y": str(n)} for n in numbers]),
        }
    )
    lance.write_dataset(table.slice(0, 240), path, max_rows_per_file=80, enable_stable_row_ids=request.param)
    lance.dataset(path).create_scalar_index("k", "BTREE")
    lance.write_dataset(table.slice(240), path, mode="append", max_rows_per_file=80)
    lance.dataset(path).delete("id % 9 = 4")
    return path


def from_pylance(uri: str, fragments: list[int] | None = None, **options: Any) -> pa.Table:
    dataset = lance.dataset(uri)
    chosen = None if fragments is None else [dataset.get_fragment(fragment) for fragment in fragments]
    # With an index and stable row ids, pylance leaves deleted rows out even where they are asked for.
    index = None if options.get("fast_search") else False
    if "order_by" in options:
        options["order_by"] = [
            ColumnOrdering(**vars(each)) if isinstance(each, pennon.ColumnOrdering) else each
            for each in options["order_by"]
        ]
    return dataset.scanner(fragments=chosen, use_scalar_index=index, **options).to_table()


def check(uri: str, **options: Any) -> None:
    table, expected = pennon.open(uri, engine="local"), from_pylance(uri, **options)
    assert table.scan(**options).equals(expected)
    batches = list(table.scan_batches(**options))
    rows = pa.Table.from_batches(batches, expected.schema)
    if not options.get("order_by") and not options.get("offset") and options.get("limit") is None:
        rows, expected = (each.sort_by([(each.column_names[0], "ascending")]) for each in (rows, expected))
    assert options.get("limit") is not None or rows.equals(expected)
    assert rows.num_rows == expected.num_rows


@pytest.mark.parametrize(("filter", "limit", "offset"), list(product(FILTERS, [None, 0, 7], [None, 5, 60, 1000])))
def test_rows_from_an_offset_on(uri: str, filter: str | None, limit: int | None, offset: int | None) -> None:
    check(uri, filter=filter, columns=["id", "k"], limit=limit, offset=offset)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize(
    "order_by",
    [
        ["price", "id"],
        [ColumnOrdering("k", ascending=False, nulls_first=True), "id"],
        [pennon.ColumnOrdering("k", ascending=True, nulls_first=True), ColumnOrdering("id", ascending=False)],
    ],
)
def test_rows_in_an_order(uri: str, filter: str | None, order_by: list[Any]) -> None:
    for limit, offset, fragments in [(None, None, None), (9, None, None), (9, 4, None), (9, 4, [1, 4])]:
        check(
            uri,
            filter=filter,
            columns=["id", "k", "price"],
            order_by=order_by,
            limit=limit,
            offset=offset,
            fragments=fragments,
        )


@pytest.mark.parametrize("filter", FILTERS)
def test_rows_in_the_order_of_a_column_that_is_not_returned(uri: str, filter: str | None) -> None:
    table = pennon.open(uri, engine="local")
    full = from_pylance(uri, filter=filter, columns=["id", "price"], order_by=["price", "id"])
    assert table.scan(filter, ["id"], order_by=["price", "id"], limit=20).equals(full.select(["id"]).slice(0, 20))
    doubled = table.scan(filter, {"double": "id * 2"}, order_by=["price", "id"], limit=20)
    assert doubled.column_names == ["double"]
    assert doubled["double"].to_pylist() == [2 * number for number in full["id"].to_pylist()[:20]]


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("fragments", [[], [0], [3], [1, 3, 4], [0, 1, 2, 3, 4]])
def test_rows_of_some_fragments(uri: str, filter: str | None, fragments: list[int]) -> None:
    check(uri, filter=filter, columns=["id", "k"], fragments=fragments)


@pytest.mark.parametrize("filter", FILTERS)
def test_only_what_indices_cover(uri: str, filter: str | None) -> None:
    check(uri, filter=filter, columns=["id", "k"], fast_search=True)


def test_a_filter_that_an_index_answers_leaves_out_the_other_fragments(uri: str) -> None:
    found = pennon.open(uri, engine="local").scan("k = 3", ["id"], fast_search=True)["id"].to_pylist()
    assert found
    assert max(found) < 240


@pytest.mark.parametrize("filter", FILTERS)
def test_deleted_rows_have_no_row_id(uri: str, filter: str | None) -> None:
    check(uri, filter=filter, columns=["id"], include_deleted_rows=True, with_row_id=True)
    check(uri, filter=filter, columns=["id"], include_deleted_rows=True, with_row_id=True, fragments=[1, 4])


def test_deleted_rows_of_wide_tables(tmp_path: Path) -> None:
    """pylance fetches wide columns after the filter, but not those of deleted rows."""
    wide = pa.table({"id": range(100), "text": ["x" * 5000] * 100})
    lance.write_dataset(wide, str(tmp_path / "wide.lance")).delete("id < 10")
    table = pennon.open(str(tmp_path / "wide.lance"), engine="local")
    found = table.scan("id < 12", include_deleted_rows=True, with_row_id=True)
    assert found["id"].to_pylist() == list(range(12))
    assert found["_rowid"].null_count == 10


@pytest.mark.parametrize("filter", FILTERS)
def test_columns_may_be_expressions(uri: str, filter: str | None) -> None:
    check(uri, filter=filter, columns={"id": "id", "double": "price * 2", "x": "inner.x"})
    check(uri, filter=filter, columns={"n": "k + 1"}, with_row_id=True, with_row_address=True, offset=3)


def test_an_expression_is_a_filter_that_indices_answer(uri: str) -> None:
    table, filter = pennon.open(uri, engine="local"), (pc.field("k") == 3) & pc.field("id").isin([3, 10, 17, 395])
    expected = from_pylance(uri, filter=filter, columns=["id"])
    assert expected.num_rows > 0
    assert table.scan(filter, ["id"]).equals(expected)
    assert table.count(filter) == table.count_rows(filter) == expected.num_rows
    assert sum(batch.num_rows for batch in table.scan_batches(filter)) == expected.num_rows
    [used] = table.explain(filter).indices
    assert used.index == "k_idx"


def test_count_rows_is_pylance_s_name_for_count(uri: str) -> None:
    table, dataset = pennon.open(uri, engine="local"), lance.dataset(uri)
    assert table.count_rows() == dataset.count_rows()
    assert table.count_rows("k = 3") == dataset.count_rows("k = 3")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"columns": "id"}, InvalidArgument, r"columns takes a list, not 'id'. Write columns=\["),
        ({"columns": 7}, InvalidArgument, "columns takes a list"),
        ({"columns": ["id", 7]}, InvalidArgument, "names of columns, not 7"),
        ({"columns": {"x": 7}}, InvalidArgument, "SQL expressions by name"),
        ({"columns": {"x": "nope + 1"}}, InvalidArgument, "nope"),
        ({"limit": "7"}, InvalidArgument, "limit must be a whole number of at least 0, not '7'"),
        ({"limit": True}, InvalidArgument, "limit must be"),
        ({"offset": -1}, InvalidArgument, "offset must be"),
        ({"offset": 1.5}, InvalidArgument, "offset must be"),
        ({"order_by": "price"}, InvalidArgument, "order_by takes a list"),
        ({"order_by": [7]}, InvalidArgument, "ColumnOrdering"),
        ({"order_by": ["prise"]}, ColumnNotFound, "price"),
        ({"fragments": 1}, InvalidArgument, "fragments takes a list"),
        ({"fragments": [1, 9]}, InvalidArgument, "no fragment 9"),
        ({"fragments": ["1"]}, InvalidArgument, "no fragment '1'"),
        ({"include_deleted_rows": True}, InvalidArgument, "with_row_id=True"),
        ({"with_row_id": "yes"}, InvalidArgument, "True or False"),
        ({"nearest": 1}, InvalidArgument, "scans take no option 'nearest'"),
        ({"filter": 7}, InvalidArgument, "SQL text or a pyarrow expression, not int"),
        ({"filter": pc.field("nope") > 1}, InvalidFilter, "does not have: nope"),
    ],
)
def test_mistakes_are_reported_as_such(uri: str, arguments: dict[str, Any], error: type, message: str) -> None:
    table = pennon.open(uri, engine="local")
    with pytest.raises(error, match=message):
        table.scan(**arguments)
    with pytest.raises(error, match=message):
        list(table.scan_batches(**arguments))
