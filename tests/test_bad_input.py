"""Each wrong call gets its own error that names what is wrong and what to do, and the table stays as it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon import errors
from pennon.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table(
        {
            "user_id": range(100),
            "name": [f"n{i}" for i in range(100)],
            "tags": [[i] for i in range(100)],
            "where": [{"lat": 1.0, "lon": 2.0}] * 100,
            "kind": pa.array(["a", "b"] * 50).dictionary_encode(),
        }
    )
    lance.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=50)
    return pennon.open(tmp_path / "t.lance")


CALLS: dict[str, tuple[Callable[[Table], Any], type[errors.PennonError], str]] = {
    "missing column": (lambda t: t.create_index("userid"), errors.ColumnNotFound, r"no column 'userid'.*user_id"),
    "missing nested leaf": (lambda t: t.create_index("where.alt"), errors.ColumnNotFound, r"where\.(lat|lon)"),
    "list column": (lambda t: t.create_index("tags"), errors.UnsupportedColumn, r"'tags' of .* has type list"),
    "struct column": (lambda t: t.create_index("where"), errors.UnsupportedColumn, r"'where' of .* has type struct"),
    "dictionary column": (lambda t: t.create_index("kind"), errors.UnsupportedColumn, "dictionary"),
    "unknown type": (lambda t: t.create_index("user_id", "HASH"), errors.UnknownIndexType, "BTREE"),
    "empty name": (lambda t: t.create_index("user_id", name=""), errors.InvalidArgument, "name"),
    "reserved name": (
        lambda t: t.create_index("user_id", name="__lance_frag_reuse"),
        errors.InvalidArgument,
        "__lance_frag_reuse",
    ),
    "zero ranges": (lambda t: t.create_index("user_id", ranges=0), errors.InvalidArgument, "ranges must be at least 1"),
    "negative rows per range": (
        lambda t: t.create_index("user_id", rows_per_range=-5),
        errors.InvalidArgument,
        "rows_per_range",
    ),
    "ranges and rows per range": (
        lambda t: t.create_index("user_id", ranges=2, rows_per_range=5),
        errors.InvalidArgument,
        "contradict",
    ),
    "zero batch size": (lambda t: t.create_index("user_id", batch_size=0), errors.InvalidArgument, "batch_size"),
    "huge batch size": (lambda t: t.create_index("user_id", batch_size=1 << 30), errors.InvalidArgument, "batch_size"),
    "little memory": (
        lambda t: t.create_index("user_id", task_memory_bytes=1000),
        errors.InvalidArgument,
        "64 MiB",
    ),
    "a new value that is not SQL text": (
        lambda t: t.update({"user_id": 1.5}),
        errors.InvalidArgument,
        r"the new value of 'user_id' must be SQL text, not 1\.5\. Write \{\"user_id\": \"1\.5\"\}",
    ),
    "an empty address": (lambda t: pennon.open(""), errors.InvalidArgument, "the address of the table is empty"),
    "unknown fragment": (
        lambda t: t.create_index("user_id", fragment_ids=[0, 7]),
        errors.InvalidArgument,
        r"no fragment 7",
    ),
    "no fragments": (lambda t: t.create_index("user_id", fragment_ids=[]), errors.InvalidArgument, "empty"),
    "drop of a missing index": (lambda t: t.drop_index("nope"), errors.IndexNotFound, "'nope'"),
    "unknown column to show": (lambda t: t.scan(columns=["nam"]), errors.ColumnNotFound, "name"),
    "unknown column in a filter": (lambda t: t.scan("usr_id = 5"), errors.InvalidFilter, "usr_id"),
    "filter that does not parse": (lambda t: t.scan("user_id = = 5"), errors.InvalidFilter, "user_id = = 5"),
    "filter with an open quote": (lambda t: t.scan("name = 'abc"), errors.InvalidFilter, "filter"),
    "empty filter": (lambda t: t.scan(""), errors.InvalidFilter, "filter"),
    "filter of the wrong type": (lambda t: t.scan("user_id = 'abc'"), errors.InvalidFilter, "user_id"),
    "filter that is no condition": (lambda t: t.scan("user_id + 1"), errors.InvalidFilter, "user_id"),
    "count with a wrong filter": (lambda t: t.count("user_id ="), errors.InvalidFilter, "user_id ="),
    "explain of a wrong filter": (lambda t: t.explain("user_id ="), errors.InvalidFilter, "user_id ="),
    "negative limit": (lambda t: t.scan(limit=-1), errors.InvalidArgument, "limit"),
}


@pytest.mark.usefixtures("process_engine")
@pytest.mark.parametrize("call", CALLS)
def test_wrong_calls(call: str, table: Table) -> None:
    work, error, message = CALLS[call]
    before, files = table.version, sorted(Path(table.uri).rglob("*"))
    with pytest.raises(error, match=message):
        work(table)
    assert table.refresh().version == before
    assert sorted(Path(table.uri).rglob("*")) == files


def test_missing_table(tmp_path: Path) -> None:
    with pytest.raises(errors.TableNotFound, match=r"nowhere\.lance"):
        pennon.open(tmp_path / "nowhere.lance")


def test_missing_version(table: Table) -> None:
    with pytest.raises(errors.TableNotFound, match="version 99"):
        pennon.open(table.uri, version=99)


def test_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.lance").mkdir()
    (tmp_path / "t.lance" / "readme.txt").write_text("hello")
    with pytest.raises(errors.TableNotFound, match=r"t\.lance"):
        pennon.open(tmp_path / "t.lance")


def test_memory_tables_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="memory://"):
        pennon.open("memory://t")


@pytest.mark.usefixtures("process_engine")
def test_existing_index_may_be_kept(table: Table) -> None:
    table.create_index("user_id")
    with pytest.raises(errors.IndexExists, match="user_id_idx"):
        table.create_index("user_id", replace=False)


def test_credentials_are_not_shown() -> None:
    from pennon.format.store import Location

    assert "s3cret" not in repr(Location.of("s3://b/t", {"aws_secret_access_key": "s3cret"}))


def test_manifest_of_the_future_is_refused(table: Table) -> None:
    from pennon.format.manifest import find_manifest, parse_manifest
    from pennon.format.pb import lance_pb2 as pb
    from pennon.format.store import Location, open_store

    store = open_store(Location.of(table.uri))
    content = store.read(find_manifest(store))
    position = int.from_bytes(content[-16:-8], "little")
    manifest = pb.Manifest.FromString(content[position + 4 : -16])
    manifest.reader_feature_flags |= 1 << 20
    grown = manifest.SerializeToString()
    forged = content[:position] + len(grown).to_bytes(4, "little") + grown + content[-16:]
    with pytest.raises(errors.UnsupportedTable, match="0x100000"):
        parse_manifest(forged, "m")


@pytest.mark.parametrize("keep", [0, 3, 15, 40, 100])
def test_broken_manifests_are_named_errors(keep: int, table: Table) -> None:
    from pennon.format.manifest import find_manifest, parse_manifest
    from pennon.format.store import Location, open_store

    store = open_store(Location.of(table.uri))
    content = store.read(find_manifest(store))
    for broken in (content[:keep], content[-keep:] if keep else b"", content[:keep] + content[-16:]):
        with pytest.raises(errors.DamagedFile):
            parse_manifest(broken, "m")


@pytest.mark.parametrize("verb", ["refresh", "maintain", "optimize_indices", "compact"])
def test_a_table_that_is_gone_is_reported_as_such(tmp_path: Path, verb: str) -> None:
    lance.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "t.lance")
    table = pennon.open(str(tmp_path / "t.lance"), engine="local")
    shutil.rmtree(tmp_path / "t.lance")
    with pytest.raises(errors.TableNotFound, match="there is no Lance table at"):
        getattr(table, verb)()
