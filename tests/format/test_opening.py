"""Tables are opened by their manifest; pylance reads it when rows are read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from pyroaring import BitMap

import pennon
from pennon.errors import DamagedFile, DamagedTable, PennonError
from pennon.format import fragments as fragments_module
from pennon.format.fragments import Fragments
from pennon.format.manifest import find_manifest, manifest_protos
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.testing.engines import in_process
from tests.support.geometries import POSITION
from tests.support.tables import every_type


def opened(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def messages_of(uri: str) -> list[bytes]:
    snapshot = opened(uri)
    path = find_manifest(snapshot.store)
    manifest, _ = manifest_protos(snapshot.store.read(path), path)
    return [fragment.SerializeToString() for fragment in manifest.fragments]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    rows = every_type(2000)
    lance.write_dataset(rows, uri, max_rows_per_file=100)
    lance.dataset(uri).delete("id % 7 = 3 and id < 1200")
    lance.dataset(uri).delete("id >= 300 and id < 400")
    return uri


@pytest.fixture
def _all_in_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments_module, "FEW_FRAGMENTS", 0)


@pytest.mark.parametrize("own", [False, True])
def test_the_schema_is_that_of_pylance(tmp_path: Path, own: bool) -> None:
    """Also with types of Lance's own."""
    uri = str(tmp_path / "t.lance")
    rows = every_type(50)
    extra: dict[str, Any] = {
        "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * 50, pa.binary(16))),
        **({"j": pa.array(['{"a": 1}'] * 50, pa.json_())} if own else {}),
        "n": pa.array([{"a": 1, "b": ["x"]}] * 50),
        "d": pa.array(["x", "y"] * 25).dictionary_encode(),
    }
    for name, values in extra.items():
        rows = rows.append_column(pa.field(name, values.type, metadata={"unit": "m"}), values)
    point = pa.field("p", POSITION, metadata={"ARROW:extension:name": "geoarrow.point"})
    rows = rows.append_column(point, pa.array([{"x": 1.0, "y": 2.0}] * 50, POSITION))
    rows = rows.replace_schema_metadata({"owner": "us", "raw": b"\xc3\xa4"})
    if own:
        blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        rows = rows.append_column(blob, pa.array([b"x"] * 50, pa.large_binary()))
    lance.write_dataset(rows, uri)
    lance.dataset(uri).alter_columns({"path": "n", "name": "nested"})
    snapshot, expected = opened(uri), lance.dataset(uri).schema
    assert snapshot.schema.equals(expected, check_metadata=True)
    assert ("dataset" in vars(snapshot)) == own
    assert snapshot.dataset.schema.equals(expected, check_metadata=True)


@pytest.mark.usefixtures("_all_in_arrays")
def test_fragments_read_into_arrays_are_those_that_are_decoded(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = opened(uri).manifest.fragments
    monkeypatch.setattr(fragments_module, "FEW_FRAGMENTS", 1000)
    few = opened(uri).manifest.fragments
    assert many._numbers is not None  # pyright: ignore[reportPrivateUsage]
    assert list(many) == list(few)
    assert len(many) == len(few) == 19
    assert many.live == few.live
    assert dict(many) == dict(few)
    for some in (BitMap(few), BitMap([0, 5, 19, 500]), BitMap(), BitMap(range(0, 20, 3))):
        live = sum(f.count_rows() for f in lance.dataset(uri).get_fragments() if f.fragment_id in some)
        assert many.rows_in(some) == few.rows_in(some) == live
    assert not any(absent in many for absent in (3, -1, 2**40, "0"))
    with pytest.raises(KeyError):
        many[3]


@pytest.mark.usefixtures("_all_in_arrays")
def test_fragments_in_any_order(uri: str) -> None:
    messages = messages_of(uri)
    shuffled = [messages[at] for at in np.random.default_rng(1).permutation(len(messages)).tolist()]
    found = Fragments(shuffled, "m")
    assert [pb.DataFragment.FromString(message).id for message in shuffled] == list(found)
    assert dict(found) == dict(Fragments(messages, "m"))
    assert found.rows_in(BitMap([2, 4])) == Fragments(messages, "m").rows_in(BitMap([2, 4]))


@pytest.mark.usefixtures("_all_in_arrays")
@pytest.mark.parametrize("change", [{"id": 2**32}, {"physical_rows": 2**32 + 1}, {"id": 2**64 - 1}])
def test_impossible_fragments_are_refused(uri: str, change: dict[str, int]) -> None:
    messages = messages_of(uri)
    forged = pb.DataFragment.FromString(messages[4])
    for name, value in change.items():
        setattr(forged, name, value)
    with pytest.raises(DamagedFile, match="too large"):
        Fragments([*messages[:4], forged.SerializeToString(), *messages[5:]], "m")
    with pytest.raises(DamagedFile, match="twice"):
        Fragments([*messages, messages[2]], "m")


@pytest.mark.usefixtures("_all_in_arrays")
def test_damaged_fragments_have_a_name(uri: str) -> None:
    """Every byte of a fragment changed: what is read into arrays, or is refused, is what decoding it gives."""
    messages, rng = messages_of(uri)[:3], np.random.default_rng(7)
    for at in range(len(messages[1])):
        for value in (0, 255, int(rng.integers(256))):
            forged = messages[1][:at] + bytes([value]) + messages[1][at + 1 :]
            given = [messages[0], forged, messages[2]]
            try:
                decoded = [pb.DataFragment.FromString(message) for message in given]
            except Exception:  # noqa: BLE001
                decoded = None
            try:
                found = Fragments(given, "m")
                listed = dict(found)
            except PennonError:
                continue
            assert decoded is not None
            assert list(listed) == [proto.id for proto in decoded]
            rows = sum(proto.physical_rows - proto.deletion_file.num_deleted_rows for proto in decoded)
            assert found.rows_in(found.live) == rows
    with pytest.raises(DamagedFile):
        Fragments([messages[0], b"\x08", messages[2]], "m")
    broken = Fragments([messages[0], b"\x08\x09\x12\x02\x0a\x05\x20\x01"], "m")
    with pytest.raises(DamagedTable, match="cannot be read"):
        broken[9]


def test_counting_by_an_index_does_without_pylance(uri: str) -> None:
    with in_process():
        pennon.open(uri).create_index("i64")
    table = pennon.open(uri)
    assert table.count("i64 = 0") == lance.dataset(uri).count_rows("i64 = 0")
    assert "dataset" not in vars(table._snapshot)  # pyright: ignore[reportPrivateUsage]


def test_a_table_that_takes_the_place_of_another_is_not_read_through_its_handle(tmp_path: Path) -> None:
    """A handle of pylance is opened late: it must be one on the manifest that was read."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), uri)
    before = opened(uri)
    shutil.rmtree(uri)
    lance.write_dataset(pa.table({"a": [7, 8, 9, 10]}), uri)
    with pytest.raises(PennonError), before.reading_rows():
        before.dataset.to_table()
    assert opened(uri).dataset.count_rows() == 4


def test_the_newest_version_is_found(uri: str) -> None:
    older = opened(uri)
    lance.write_dataset(every_type(10, start=5000), uri, mode="append")
    newest = older.latest()
    assert newest.version == lance.dataset(uri).version == older.version + 1
    assert newest.latest() is newest
    assert opened(uri).version == newest.version


def test_a_manifest_of_many_fragments(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"id": np.arange(10)}), uri)
    one: Any = dataset.get_fragments()[0].metadata
    same = [FragmentMetadata(number, one.files, one.physical_rows) for number in range(3000)]
    lance.LanceDataset.commit(uri, lance.LanceOperation.Overwrite(dataset.schema, same))
    snapshot = opened(uri)
    assert snapshot.manifest.rows_in(snapshot.manifest.live) == lance.dataset(uri).count_rows() == 30_000
    assert snapshot.manifest.fragments[2999].field_files == {0: one.files[0].path}
    with in_process():
        pennon.open(uri).create_index("id")
    assert pennon.open(uri).count("id = 5") == 3000
