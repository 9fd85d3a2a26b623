"""Names in metadata that lead out of a table lead nowhere: nothing beside it is read, written or deleted."""

from __future__ import annotations

import os
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pytest

import pennon
from pennon.errors import DamagedFile, DamagedIndexWarning, PennonError
from pennon.format.index_metadata import is_plain_path
from pennon.format.pb import lance_pb2 as pb
from pennon.index.cache import SHARED_CACHE
from tests.hostile.victims import rows, stock_rows
from tests.support.manifests import edit_newest

NAMES = [
    "../../../secret/lookup",
    "..",
    "a/../../../secret/lookup",
    "..\\..\\secret",
    "/secret",
    "file:///secret",
    "s3://bucket/secret",
    "C:secret",
    "%2e%2e/%2e%2e/secret",
    "x\0y",
    "",
    ".",
    "a//b",
]

pytestmark = pytest.mark.usefixtures("no_spark")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table beside a directory that is none of its business."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(400, vectors=False), uri, max_rows_per_file=100)
    pennon.open(uri).create_index("i", batch_size=64)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "lookup").write_bytes(b"secret")
    return uri


def untouched(uri: str) -> bool:
    beside = Path(uri).parent / "secret"
    return sorted(beside.iterdir()) == [beside / "lookup"] and (beside / "lookup").read_bytes() == b"secret"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_an_index_that_lies_elsewhere(uri: str, name: str) -> None:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].files[0].path = name

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    [index] = table.indices()
    assert "outside its directory" in (index.segments[0].unusable or "")
    assert table.count("i = 40") == len(stock_rows(lance.dataset(uri), "i = 40"))
    assert "outside its directory" in str(table.explain("i = 40"))
    table.drop_index("i_idx")
    assert pennon.open(uri).indices() == []
    assert untouched(uri)


@pytest.mark.parametrize("name", ["../../secret/rows.lance", "..\\..\\x", "a/../../../secret/rows.lance", "x" * 300])
@pytest.mark.parametrize("filter", ["i = 40", "i >= 0 AND i < 90"])
def test_a_data_file_that_lies_elsewhere(uri: str, name: str, filter: str) -> None:
    """Rows that an index finds are read without pylance, if they are numbers: not from another directory."""
    [data, *_] = (Path(uri) / "data").iterdir()
    (Path(uri).parent / "secret" / "rows.lance").write_bytes(data.read_bytes())

    def edit(manifest: pb.Manifest, _: pb.IndexSection) -> None:
        for fragment in manifest.fragments:
            fragment.files[0].path = name

    edit_newest(Path(uri), edit)
    SHARED_CACHE.clear()
    with pytest.raises(PennonError):
        pennon.open(uri).scan(filter, ["i"])
    with pytest.raises(PennonError):
        pennon.open(uri).create_index("i", name="again")


def test_a_repair_replaces_such_an_index(uri: str) -> None:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].files[0].path = "../../../secret/lookup"

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    report = table.audit(repair=True)
    assert "outside its directory" in report.repaired[0].problem
    assert table.indices()[0].segments[0].unusable is None
    assert table.count("i = 40") == len(stock_rows(lance.dataset(uri), "i = 40"))
    assert untouched(uri)


@pytest.mark.parametrize("name", NAMES)
def test_moves_that_lie_elsewhere(uri: str, name: str) -> None:
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=1000)

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        [entry] = [index for index in indices.indices if index.name == "__lance_frag_reuse"]
        details = pb.FragmentReuseDetails(external=pb.ExternalFile(path=name, offset=0, size=6))
        entry.index_details.value = details.SerializeToString()

    edit_newest(Path(uri), edit)
    SHARED_CACHE.clear()
    table = pennon.open(uri)
    with pytest.raises(DamagedFile, match="outside its directory"):
        table.fragment_reuse()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedIndexWarning)
        with pytest.raises(PennonError, match="outside its directory"):
            table.scan("i = 40")  # pylance would read it, too
        assert table.scan(columns=["id"]).num_rows == 400
    assert untouched(uri)


def set_uuid(value: bytes) -> Any:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].uuid.value = value

    return edit


@pytest.mark.parametrize("value", [b"../../../secret", b"", b"/" * 17])
def test_a_uuid_that_is_none(uri: str, value: bytes) -> None:
    edit_newest(Path(uri), set_uuid(value))
    with pytest.raises(PennonError):
        pennon.open(uri).count("i = 40")
    assert untouched(uri)


def test_any_sixteen_bytes_stay_inside(uri: str) -> None:
    """They are written in hexadecimal, whatever they spell."""
    edit_newest(Path(uri), set_uuid(b"../../../secret/"))
    with pytest.warns(DamagedIndexWarning):
        assert pennon.open(uri).count("i = 40") == len(stock_rows(lance.dataset(uri), "i = 40"))
    assert untouched(uri)


@pytest.mark.parametrize("name", ["../../secret", "<script>", "\0", "x" * 10_000])
def test_the_name_of_an_index_is_no_path(uri: str, name: str) -> None:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].name = name

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    assert table.indices()[0].name == name
    assert "<script>" not in table.report().replace("<script>\n", "")
    table.drop_index(name)
    assert untouched(uri)


def test_orphans_are_not_looked_for_behind_links(uri: str) -> None:
    """A link in place of an index directory, or in one: it goes, and what it leads to stays."""
    root = Path(uri)
    link, directory = root / "_indices" / str(uuid4()), root / "_indices" / str(uuid4())
    link.symlink_to(root.parent / "secret")
    directory.mkdir()
    (directory / "inner").symlink_to(root.parent / "secret")
    past = time.time() - 10 * 86_400
    for path in (directory, root.parent / "secret", root.parent / "secret" / "lookup"):
        os.utime(path, (past, past))
    for path in (link, directory / "inner"):
        os.utime(path, (past, past), follow_symlinks=False)
    pennon.open(uri).clean_orphans(timedelta(days=8))
    assert not directory.exists()
    assert untouched(uri)


def test_directories_that_are_no_uuids_are_nobodys_orphans(uri: str) -> None:
    for name in ("..x", "notes", "DEADBEEF"):
        path = Path(uri) / "_indices" / name
        path.mkdir()
        (path / "file").write_bytes(b"kept")
        os.utime(path / "file", (0, 0))
        os.utime(path, (0, 0))
    pennon.open(uri).clean_orphans(timedelta(days=8))
    assert {path.name for path in (Path(uri) / "_indices").iterdir()} >= {"..x", "notes", "DEADBEEF"}


def test_the_partition_of_a_page_file_is_a_number() -> None:
    assert is_plain_path("part_4294967296_page_data.lance")
    assert not any(is_plain_path(name) for name in NAMES)
