"""Damaged trees are noticed, and scanned around: no row is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.format.pb import lance_pb2 as pb
from pennon.index.cache import SHARED_CACHE
from pennon.index.rtree.checksums import CHECKSUMS_FILE
from pennon.index.rtree.files import NULLS_FILE, PAGE_FILE, SCHEMA
from pennon.index.rtree.geometries import BOUNDS
from pennon.testing.oracles import full_scans
from tests.support.geometries import geometries, geometry_table, rectangle
from tests.support.manifests import edit_newest

pytestmark = pytest.mark.usefixtures("process_engine")

FILTERS = (f"st_intersects(p, {rectangle(-40, -40, 10, 10)})", f"st_within(p, {rectangle(0, 0, 90, 20)})", "p is null")
Edit = Callable[[dict[str, Any], dict[str, str]], None]


def make(path: Path) -> str:
    uri = str(path / "t.lance")
    lance.write_dataset(geometry_table(0, geometries(600, 8)), uri, max_rows_per_file=200)
    pennon.open(uri).create_index("p", "RTREE", page_size=16)
    return uri


def rewrite(uri: str, edit: Edit) -> None:
    """The tree with other rows or metadata, and without checksums, as another writer might write it."""
    [path] = Path(uri).glob(f"_indices/*/{PAGE_FILE}")
    reader = LanceFileReader(str(path))
    table, known = reader.read_all().to_table(), reader.metadata().schema.metadata or {}
    columns: dict[str, Any] = {name: np.array(table["bbox"].combine_chunks().field(name)).copy() for name in BOUNDS}
    columns["id"] = np.array(table["id"]).copy()
    metadata = {key.decode(): value.decode() for key, value in known.items()}
    edit(columns, metadata)
    boxes = pa.StructArray.from_arrays([pa.array(columns[name]) for name in BOUNDS], fields=list(SCHEMA[0].type))
    path.unlink()
    with LanceFileWriter(str(path), SCHEMA, version=lance.dataset(uri).data_storage_version) as writer:
        writer.write_batch(pa.record_batch([boxes, pa.array(columns["id"])], schema=SCHEMA))
        for key, value in metadata.items():
            writer.add_schema_metadata(key, value)

    def forget(_: pb.Manifest, indices: pb.IndexSection) -> None:
        for index in indices.indices:
            kept = [file for file in index.files if file.path != CHECKSUMS_FILE]
            for file in kept:
                file.size_bytes = path.stat().st_size if file.path == PAGE_FILE else file.size_bytes
            del index.files[:]
            index.files.extend(kept)

    edit_newest(Path(uri), forget)


def agrees(uri: str) -> bool:
    table = pennon.open(uri)
    scans = full_scans(lance.dataset(uri), FILTERS).items()
    return all(sorted(table.scan(filter, ["id"])["id"].to_pylist()) == rows for filter, rows in scans)


def _smaller_root(columns: dict[str, Any], _: dict[str, str]) -> None:
    columns["xmax"][-1] = columns["xmin"][-1]


def _smaller_page(columns: dict[str, Any], metadata: dict[str, str]) -> None:
    items = int(metadata["num_items"])
    columns["ymin"][items : items + 30] = columns["ymax"][items : items + 30]


def _backwards(columns: dict[str, Any], _: dict[str, str]) -> None:
    columns["xmin"][:], columns["xmax"][:] = columns["xmax"] + 1, columns["xmin"].copy()


def _not_numbers(columns: dict[str, Any], _: dict[str, str]) -> None:
    columns["xmin"][5:300] = np.nan


def _other_pages(columns: dict[str, Any], metadata: dict[str, str]) -> None:
    items = int(metadata["num_items"])
    columns["id"][items : items + 2] = columns["id"][items : items + 2][::-1].copy()


def _beyond_the_table(columns: dict[str, Any], metadata: dict[str, str]) -> None:
    columns["id"][: int(metadata["num_items"])] += 10**6


def _set(key: str, value: str) -> Edit:
    return lambda _, metadata: metadata.update({key: value})


@pytest.mark.parametrize(
    "edit",
    [
        _smaller_root,
        _smaller_page,
        _backwards,
        _not_numbers,
        _other_pages,
        _beyond_the_table,
        _set("page_size", "17"),
        _set("page_size", "1"),
        _set("page_size", "many"),
        _set("num_items", "100"),
        _set("num_items", "99999999999999999"),
        _set("num_pages", "3"),
    ],
)
def test_trees_that_contradict_themselves(tmp_path: Path, edit: Edit) -> None:
    uri = make(tmp_path)
    rewrite(uri, edit)
    with pytest.warns(DamagedIndexWarning):
        assert agrees(uri)
    assert not pennon.open(uri).audit().ok
    assert pennon.open(uri).audit(repair=True).ok
    assert agrees(uri)


def test_a_tree_of_another_writer_is_used(tmp_path: Path) -> None:
    """Without checksums, and with any box around all of it."""
    uri = make(tmp_path)
    rewrite(uri, lambda _, metadata: metadata.update(bbox="{}"))
    assert agrees(uri)
    assert pennon.open(uri).explain(FILTERS[0]).indices
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize(
    ("builder", "name"),
    [(who, name) for who in ("pennon", "pylance") for name in (PAGE_FILE, NULLS_FILE)] + [("pennon", CHECKSUMS_FILE)],
)
def test_damaged_files(tmp_path: Path, builder: str, name: str) -> None:
    """A flipped bit in Pennon's, which have checksums, or a file of pylance that ends early."""
    uri = make(tmp_path)
    if builder == "pylance":
        lance.dataset(uri).create_scalar_index("p", "RTREE", name="p_idx", replace=True)
    segment = pennon.open(uri).indices()[0].segments[0].uuid
    path = Path(uri) / "_indices" / segment / name
    content = path.read_bytes()
    rng = np.random.default_rng(4)
    if builder == "pylance":
        path.write_bytes(content[: len(content) // 2])
        with pytest.warns(DamagedIndexWarning):
            assert agrees(uri)
        return
    for _ in range(12):
        damaged = bytearray(content)
        damaged[int(rng.integers(0, len(content)))] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(damaged)
        SHARED_CACHE.clear()
        with warnings.catch_warnings():  # not every bit of a Lance file is read
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", DamagedIndexWarning)
            assert agrees(uri)
