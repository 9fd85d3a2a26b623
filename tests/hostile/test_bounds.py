"""Counts, ids and lengths that cannot be are refused before anything of their size is made. Fuzzing found them."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

import pennon
from pennon.errors import DamagedFile, DamagedIndexWarning, DamagedTable, PennonError
from pennon.format.pb import lance_pb2 as pb
from pennon.format.protobuf_wire import fields, numbers
from pennon.format.row_ids import check_sequence
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse.address_map import AddressMap, surviving_runs
from tests.hostile.mutations import record_size
from tests.hostile.victims import DIM, rows, stock_rows
from tests.support.forged_files import DEEP, Opened, read, without_digests, write
from tests.support.forged_messages import _endless_ids  # pyright: ignore[reportPrivateUsage]
from tests.support.manifests import Edit, edit_newest, newest

pytestmark = pytest.mark.usefixtures("no_spark")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(900), uri, max_rows_per_file=300)
    pennon.open(uri).create_index("i", ranges=2, batch_size=64)
    lance.dataset(uri).delete("id % 7 = 2")
    return uri


def set_fragment(**values: int) -> Edit:
    def edit(manifest: pb.Manifest, _: pb.IndexSection) -> None:
        for name, value in values.items():
            setattr(manifest.fragments[1], name, value)

    return edit


def twice(manifest: pb.Manifest, _: pb.IndexSection) -> None:
    manifest.fragments.add().CopyFrom(manifest.fragments[0])


@pytest.mark.parametrize(
    "edit",
    [set_fragment(id=2**32), set_fragment(id=2**63), set_fragment(physical_rows=2**33), set_fragment(id=0), twice],
)
def test_fragments_that_cannot_be(uri: str, edit: Edit) -> None:
    edit_newest(Path(uri), edit)
    with pytest.raises(DamagedFile):
        pennon.open(uri).count("i = 40")


def test_a_manifest_of_another_version(uri: str) -> None:
    path = newest(Path(uri))
    older = sorted(path.parent.glob("*.manifest"))[1]
    path.write_bytes(older.read_bytes())
    with pytest.raises(PennonError):
        pennon.open(uri, version=lance.dataset(uri).version + 1)


def test_panics_of_pylance_have_a_name(uri: str) -> None:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].created_at = 2**63

    edit_newest(Path(uri), edit)
    with pytest.raises(DamagedTable, match="timestamp"):
        pennon.open(uri)


def test_a_coverage_without_end(uri: str) -> None:
    everything = BitMap()
    everything.add_range(0, 2**32)
    everything.run_optimize()

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].fragment_bitmap = everything.serialize()

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    assert "4294967296 fragments" in (table.indices()[0].segments[0].unusable or "")
    assert table.count("i < 9") == len(stock_rows(lance.dataset(uri), "i < 9"))
    table.audit(recall_queries=0)
    table.drop_index("i_idx")


def test_two_segments_of_one_uuid(uri: str) -> None:
    pennon.open(uri).create_index("s", batch_size=64)

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[1].uuid.value = indices.indices[0].uuid.value

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    assert all("several segments" in (index.segments[0].unusable or "") for index in table.indices())
    assert table.count("s like 'k01%'") == len(stock_rows(lance.dataset(uri), "s like 'k01%'"))


def test_segments_of_two_kinds_under_one_name(uri: str) -> None:
    """No writer makes them: whichever comes first gives the name its meaning."""
    pennon.open(uri).create_index("v", "IVF_FLAT", num_partitions=2, max_iters=2)
    for name in ("i_idx", "v_idx"):

        def rename(_: pb.Manifest, indices: pb.IndexSection, name: str = name) -> None:
            for index in indices.indices:
                index.name = name

        edit_newest(Path(uri), rename)
        table = pennon.open(uri)
        assert table.count("i < 50") == len(stock_rows(lance.dataset(uri), "i < 50"))
        assert table.search("v", np.zeros(DIM, np.float32), 3).num_rows == 3
        assert any("another kind" in skipped.reason for skipped in table.explain("i < 50").skipped)


def test_an_index_on_no_column(uri: str) -> None:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        del indices.indices[0].fields[:]

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    table.plan_optimize()
    table.report()
    assert table.count("i < 9") == len(stock_rows(lance.dataset(uri), "i < 9"))


@pytest.mark.parametrize("content", [b"", b"x" * 700, None])
def test_a_damaged_deletion_file_is_no_damaged_index(uri: str, content: bytes | None) -> None:
    """pylance is not given it: it ends the process where it cannot allocate what the file says."""
    path = min((Path(uri) / "_deletions").iterdir())
    path.write_bytes(path.read_bytes()[:-60] if content is None else content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ask in (lambda t: t.count("i >= 0"), lambda t: t.scan("s = 'k033'"), lambda t: t.scan()):
            with pytest.raises(DamagedTable, match="deletion file"):
                ask(pennon.open(uri))


def test_a_deletion_file_with_rows_twice_or_beyond_the_end(uri: str) -> None:
    path = min((Path(uri) / "_deletions").iterdir())
    count = pa.ipc.open_file(path).read_all().num_rows
    for offsets in (np.zeros(count), np.arange(count) + 299):
        batch = pa.record_batch([pa.array(offsets.astype(np.uint32))], names=["row_id"])
        with pa.ipc.new_file(path, batch.schema) as writer:
            writer.write_batch(batch)
        with pytest.raises(DamagedTable, match="rows twice, or rows its fragment"):
            pennon.open(uri).count("i >= 0")


def test_a_bitmap_of_deletions_that_names_everything(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(12_000, vectors=False), uri)
    lance.dataset(uri).delete("id % 2 = 1")
    [path] = (Path(uri) / "_deletions").glob("*.bin")
    everything = BitMap()
    everything.add_range(0, 2**32)
    everything.run_optimize()
    path.write_bytes(everything.serialize())
    with pytest.raises(DamagedTable, match="lists 4294967296 rows"):
        pennon.open(uri).count("i = 40")


def test_row_ids_without_end() -> None:
    with pytest.raises(ValueError, match="row ids for 300 rows"):
        check_sequence(_endless_ids(np.random.default_rng(0)), 300)
    with pytest.raises(ValueError, match="does not end"):
        list(fields(b"\x08\xff"))
    with pytest.raises(ValueError, match="more than ten bytes"):
        numbers(b"\xff" * 11)
    with pytest.raises(ValueError, match="are left"):
        list(fields(b"\x0a\xff\xff\xff\xff\x0f"))


def test_row_ids_without_end_in_a_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(600, vectors=False), uri, max_rows_per_file=300, enable_stable_row_ids=True)
    pennon.open(uri).create_index("i", batch_size=64)

    def edit(manifest: pb.Manifest, _: pb.IndexSection) -> None:
        manifest.fragments[1].inline_row_ids = _endless_ids(np.random.default_rng(0))

    edit_newest(Path(uri), edit)
    with pytest.raises(PennonError):
        pennon.open(uri).scan("i = 40", with_row_id=True)
    with pytest.raises(DamagedTable, match="invalid row ids"):
        pennon.open(uri).count("id >= 0")
    with pytest.raises(PennonError):
        _ = pennon.open(uri)._snapshot.address_of_id  # pyright: ignore[reportPrivateUsage]


def moved(uri: str, change: Callable[[pb.FragmentReuseContent], Any]) -> str:
    """A table with moves that are not what they were."""
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=1000)

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        [entry] = [index for index in indices.indices if index.name == "__lance_frag_reuse"]
        details = pb.FragmentReuseDetails.FromString(entry.index_details.value)
        change(details.inline)
        entry.index_details.value = details.SerializeToString()

    edit_newest(Path(uri), edit)
    SHARED_CACHE.clear()
    return uri


def huge_id(content: pb.FragmentReuseContent) -> None:
    content.versions[0].groups[0].old_fragments[0].id = 2**40


def huge_rows(content: pb.FragmentReuseContent) -> None:
    content.versions[0].groups[0].old_fragments[0].physical_rows = 2**63


def same_group(content: pb.FragmentReuseContent) -> None:
    content.versions[0].groups.add().CopyFrom(content.versions[0].groups[0])


def same_version(content: pb.FragmentReuseContent) -> None:
    content.versions.add().CopyFrom(content.versions[0])


@pytest.mark.parametrize("change", [huge_id, huge_rows, same_group, same_version])
def test_moves_that_cannot_be(uri: str, change: Callable[[pb.FragmentReuseContent], Any]) -> None:
    table = pennon.open(moved(uri, change))
    with pytest.raises(DamagedFile):
        table.fragment_reuse()
    with pytest.warns(DamagedIndexWarning, match="no index of .* can be used"):
        explanation = table.explain("i < 9")
    assert not explanation.indices


def test_moves_into_a_fragment_of_another_size(uri: str) -> None:
    """They are consistent in themselves; the table says otherwise."""

    def fewer(content: pb.FragmentReuseContent) -> None:
        group = content.versions[0].groups[0]
        rows = BitMap64.deserialize(group.changed_row_addrs)
        rows.discard(rows.min())
        group.changed_row_addrs = rows.serialize()
        group.new_fragments[0].physical_rows -= 1

    table = pennon.open(moved(uri, fewer))
    with pytest.warns(DamagedIndexWarning, match="moves .* rows into fragment"):
        assert not table.explain("i < 9").indices


@pytest.mark.parametrize("name", ["elsewhere", "i_idx"])
def test_moves_under_another_name(uri: str, name: str) -> None:
    moved(uri, lambda _: None)

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        [entry] = [index for index in indices.indices if index.name == "__lance_frag_reuse"]
        entry.name = name

    edit_newest(Path(uri), edit)
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning, match="is not one entry of its name and type"):
        assert not table.explain("i < 9").indices


def test_runs_of_rows_that_cannot_be_listed() -> None:
    """Few bytes say so much; what is made of them is small, too, and the same as by listing."""
    survivors = BitMap64()
    survivors.add_range(5 << 32, (5 << 32) + 2**31)
    survivors.discard((5 << 32) + 70_000)
    survivors.add((5 << 32) + 2**31 + 3)
    fragment, starts, lengths = surviving_runs(survivors, 5, 2**32)
    assert fragment == 5
    base = 5 << 32
    assert starts.tolist() == [base, base + 70_001, base + 2**31 + 3]
    assert lengths.tolist() == [70_000, 2**31 - 70_001, 1]


def test_moves_of_fragments_with_absurd_ids_take_little_memory() -> None:
    fragment, rows = 2**32 - 2, 2**31
    start = np.array([fragment << 32], dtype=np.uint64)
    moves = AddressMap.of_runs([(fragment, start, np.array([rows], dtype=np.uint64))], [(7, rows)])
    addresses = np.array([(fragment << 32) + 9, (fragment << 32) + rows, 3 << 32], dtype=np.uint64)
    found, alive = moves.apply(addresses)
    assert alive.tolist() == [True, False, True]
    assert found[[0, 2]].tolist() == [(7 << 32) + 9, 3 << 32]


def forged(uri: str, pattern: str, change: Callable[[Opened], Any]) -> None:
    for path in Path(uri).glob(f"_indices/*/{pattern}"):
        opened = read(path)
        without_digests(opened)
        change(opened)
        write(path, opened)
        record_size(Path(uri), path)
    SHARED_CACHE.clear()


def set_metadata(key: str, value: str) -> Callable[[Opened], Any]:
    return lambda opened: opened.metadata.__setitem__(key, value)


def null_numbers(opened: Opened) -> None:
    at = opened.table.column_names.index("page_idx")
    values = pa.array([None, *range(1, opened.table.num_rows)], pa.uint32())
    opened.table = opened.table.set_column(at, "page_idx", values)


def null_ids(opened: Opened) -> None:
    values = pa.array([None, *opened.table["ids"].to_pylist()[1:]], pa.uint64())
    opened.table = opened.table.set_column(1, "ids", values)


LOOKUP = "page_lookup.lance"


@pytest.mark.parametrize(
    ("pattern", "change"),
    [
        (LOOKUP, set_metadata("page_num_per_range_partition", DEEP)),
        (LOOKUP, set_metadata("page_num_per_range_partition", "[[0,1e999]]")),
        (LOOKUP, set_metadata("page_num_per_range_partition", "[[0,1,2]]")),
        (LOOKUP, set_metadata("batch_size", "9" * 5000)),
        (LOOKUP, set_metadata("batch_size", str(2**62))),
        (LOOKUP, null_numbers),
        ("part_*", null_ids),
        (LOOKUP, lambda opened: opened.metadata.pop("page_num_per_range_partition")),
    ],
)
def test_trees_that_make_no_sense(uri: str, pattern: str, change: Callable[[Opened], Any]) -> None:
    forged(uri, pattern, change)
    with pytest.warns(DamagedIndexWarning):
        assert pennon.open(uri).count("i >= 0") == len(stock_rows(lance.dataset(uri), "i >= 0"))


def test_a_plain_tree_that_lost_its_pages(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(900, vectors=False), uri)
    pennon.open(uri).create_index("i")
    forged(uri, LOOKUP, lambda opened: setattr(opened, "table", opened.table.slice(0, 0)))
    with pytest.warns(DamagedIndexWarning, match="holds 0 at most"):
        assert pennon.open(uri).count("i < 9") == len(stock_rows(lance.dataset(uri), "i < 9"))


def storage(**changes: Any) -> Callable[[Opened], Any]:
    def change(opened: Opened) -> None:
        said = json.loads(json.loads(opened.metadata["storage_metadata"])[0]) | changes
        opened.metadata["storage_metadata"] = json.dumps([json.dumps(said)])

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("auxiliary.idx", set_metadata("storage_metadata", DEEP)),
        ("auxiliary.idx", set_metadata("storage_metadata", json.dumps([DEEP]))),
        ("auxiliary.idx", set_metadata("storage_metadata", '["[]"]')),
        ("auxiliary.idx", set_metadata("distance_type", "")),
        ("auxiliary.idx", storage(dim=2**40)),
        ("auxiliary.idx", storage(dim=-1)),
        ("auxiliary.idx", storage(bounds=[])),
        ("index.idx", set_metadata("lance:index", DEEP)),
        ("index.idx", set_metadata("lance:index", '{"type":[],"distance_type":"l2"}')),
        ("index.idx", set_metadata("lance:index", '{"type":"IVF_SQ","distance_type":7}')),
        ("index.idx", set_metadata("lance:ivf", "77")),
        ("index.idx", set_metadata("lance:ivf", "-1")),
    ],
)
def test_vector_indices_that_make_no_sense(uri: str, name: str, change: Callable[[Opened], Any]) -> None:
    pennon.open(uri).create_index("v", "IVF_SQ", num_partitions=3)
    query = np.zeros(16, dtype=np.float32)
    expected = pennon.open(uri).search("v", query, use_index=False)["id"].to_pylist()
    forged(uri, name, change)
    forged(uri, "index.idx" if name == "auxiliary.idx" else "auxiliary.idx", lambda _: None)
    with pytest.warns(DamagedIndexWarning):
        assert pennon.open(uri).search("v", query)["id"].to_pylist() == expected


@pytest.mark.parametrize("at", [-40, -32, -24, -16, -12])
def test_a_container_that_says_too_much(uri: str, at: int) -> None:
    """Positions and counts at the end of a Lance file; pylance is not asked for what is not there."""
    for path in Path(uri).glob(f"_indices/*/{LOOKUP}"):
        content = bytearray(path.read_bytes())
        form = "<Q" if at <= -24 else "<I"
        content[at : at + struct.calcsize(form)] = struct.pack(form, 2 ** (8 * struct.calcsize(form)) - 2)
        path.write_bytes(bytes(content))
    with pytest.warns(DamagedIndexWarning, match="not a valid Lance file"):
        assert pennon.open(uri).count("i < 9") == len(stock_rows(lance.dataset(uri), "i < 9"))
