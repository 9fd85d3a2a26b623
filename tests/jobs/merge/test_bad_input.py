"""What cannot be merged is refused with one clear error, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon import Delete, Insert, Update
from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter, PennonError
from tests.jobs.rows.tables import content, files, rows, twins

pytestmark = pytest.mark.usefixtures("process_engine")

Call = Callable[[pennon.Table], Any]
KEYS = pa.table({"id": pa.array([1, 5000], pa.int64())})


def source(**columns: Any) -> pa.Table:
    return pa.table({"id": pa.array([1, 5000], pa.int64()), **columns})


CASES: dict[str, tuple[Call, type[PennonError], str]] = {
    "a key twice": (lambda t: t.merge(rows([7, 8, 7, 9, 9]), "id"), InvalidArgument, "2 keys in more than one row"),
    "the keys are shown": (lambda t: t.merge(rows([7, 8, 7]), "id"), InvalidArgument, "such as id = 7"),
    "no such key": (lambda t: t.merge(KEYS, "nope"), ColumnNotFound, "nope"),
    "the source lacks the key": (lambda t: t.merge(KEYS, "k"), ColumnNotFound, "no key column 'k'"),
    "a key of another type": (
        lambda t: t.merge(pa.table({"id": ["1"]}), "id"),
        InvalidArgument,
        "'id' have type string",
    ),
    "a key that is part of a column": (lambda t: t.merge(KEYS, "n.a"), PennonError, "n.a"),
    "a key with no order": (lambda t: t.merge(rows([1]), "v"), PennonError, "looked up by such values"),
    "no key": (lambda t: t.merge(KEYS, []), InvalidArgument, "on must name"),
    "a number as key": (lambda t: t.merge(KEYS, 3), InvalidArgument, "on must name"),
    "the key twice": (lambda t: t.merge(KEYS, ["id", "id"]), InvalidArgument, "names a column twice"),
    "an unknown column": (lambda t: t.merge(source(nope=[1, 2]), "id"), ColumnNotFound, "'nope', which the source has"),
    "a column of another type": (lambda t: t.merge(source(k=["a", "b"]), "id"), InvalidArgument, "has type string"),
    "a value that does not fit": (
        lambda t: t.merge(source(k=pa.array([1, 2**40], pa.int64())), "id"),
        InvalidArgument,
        "does not fit",
    ),
    "a vector of another length": (
        lambda t: t.merge(source(v=pa.array([[1.0], [2.0]], pa.list_(pa.float32()))), "id"),
        InvalidArgument,
        "does not fit",
    ),
    "two columns of one name": (
        lambda t: t.merge(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), "id"),
        InvalidArgument,
        "two columns 'id'",
    ),
    "an update of the key": (
        lambda t: t.merge(source(k=[1, 2]), "id", when_matched=Update({"id": "source.k"})),
        InvalidArgument,
        "is a key",
    ),
    "an update of no column": (
        lambda t: t.merge(KEYS, "id", when_matched=Update(["nope"])),
        ColumnNotFound,
        "no column 'nope'",
    ),
    "an update from no column": (
        lambda t: t.merge(KEYS, "id", when_matched=Update(["k"])),
        ColumnNotFound,
        "the source has no column 'k'",
    ),
    "a value of another type": (
        lambda t: t.merge(KEYS, "id", when_matched=Update({"k": "'x'"})),
        InvalidArgument,
        "is of type string",
    ),
    "a condition that is none": (
        lambda t: t.merge(KEYS, "id", when_matched=Update(condition="source.id + 1")),
        InvalidArgument,
        "not a condition",
    ),
    "a condition over nothing": (
        lambda t: t.merge(KEYS, "id", when_matched=Update(condition="source.nope > 1")),
        InvalidFilter,
        "nope",
    ),
    "an insert by the table": (
        lambda t: t.merge(KEYS, "id", when_not_matched=Insert("target.k > 1")),
        InvalidFilter,
        "cannot be evaluated",
    ),
    "a delete by the source": (
        lambda t: t.merge(KEYS, "id", when_not_matched_by_source=Delete("source.id > 1")),
        InvalidFilter,
        "cannot be evaluated",
    ),
    "an unknown clause": (lambda t: t.merge(KEYS, "id", when_matched="replace"), InvalidArgument, "not 'replace'"),
    "a clause of another place": (
        lambda t: t.merge(KEYS, "id", when_not_matched=Delete()),
        InvalidArgument,
        "when_not_matched takes",
    ),
    "a clause that never applies": (
        lambda t: t.merge(KEYS, "id", when_matched=["update", "delete"]),
        InvalidArgument,
        "never apply",
    ),
    "no clause": (
        lambda t: t.merge(KEYS, "id", when_matched=None, when_not_matched=None),
        InvalidArgument,
        "no clause",
    ),
    "a condition that is no text": (
        lambda t: t.merge(KEYS, "id", when_matched=Delete(3)),  # pyright: ignore[reportArgumentType]
        InvalidArgument,
        "SQL text",
    ),
    "a list as source": (lambda t: t.merge([{"id": 1}], "id"), InvalidArgument, "not builtins.list"),
    "a flag that is none": (lambda t: t.merge(KEYS, "id", maintain="yes"), InvalidArgument, "True or False"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused(tmp_path: Path, case: str) -> None:
    table, theirs = twins(tmp_path, 100)
    before = files(table.uri, "data", "_deletions", "_indices", "_versions", "_transactions")
    call, error, text = CASES[case]
    with pytest.raises(error) as raised:
        call(table)
    assert text in str(raised.value)
    assert files(table.uri, "data", "_deletions", "_indices", "_versions", "_transactions") == before
    assert content(table.uri) == content(theirs)


def test_columns_that_hold_no_null(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())]
    )
    lance.write_dataset(pa.table({"id": [1, 2], "a": [1, 1], "b": [2, 2]}, schema=schema), uri)
    table = pennon.open(uri)
    before = files(uri, "data")
    with pytest.raises(InvalidArgument, match="lacks column 'a'"):
        table.merge(pa.table({"id": [1, 3], "b": pa.array([5, 5], pa.int32())}), "id")
    with pytest.raises(InvalidArgument, match="cannot hold NULL"):
        table.merge(pa.table({"id": [1, 3], "a": pa.array([None, 5], pa.int32())}), "id")
    assert files(uri, "data") == before
    done = table.merge(pa.table({"id": [1, 3], "a": [7, 8]}), "id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    found = sorted(lance.dataset(uri).to_table().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": 1, "a": 7, "b": 2}, {"id": 2, "a": 1, "b": 2}, {"id": 3, "a": 8, "b": None}]
    done = table.merge(pa.table({"id": [2], "b": [9]}), "id", when_not_matched=None)
    assert done.rows_updated == 1


def test_conversions(tmp_path: Path) -> None:
    """Values of wider and narrower types, if they fit."""
    table, _ = twins(tmp_path, 100)
    given = pa.table(
        {
            "id": pa.array([1, 5000], pa.int16()),
            "k": pa.array([5, 6], pa.int64()),
            "s": pa.array(["x", "y"], pa.large_string()),
            "v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64())),
        }
    )
    done = table.merge(given, "id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    found = lance.dataset(table.uri).to_table(["id", "k", "s", "v", "n"], filter="id in (1, 5000)").to_pylist()
    by_id = {row["id"]: row for row in found}
    assert by_id[1] == {"id": 1, "k": 5, "s": "x", "v": [1.0, 2.0], "n": {"a": 1, "b": "b1"}}
    assert by_id[5000] == {"id": 5000, "k": 6, "s": "y", "v": [3.0, 4.0], "n": None}
