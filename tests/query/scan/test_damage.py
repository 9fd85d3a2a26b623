"""A damaged index costs a warning and time, never a wrong answer."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.index.cache import SHARED_CACHE
from tests.support.damage import truncate
from tests.support.tables import FILTERS, full_scan, write_every_type

pytestmark = pytest.mark.usefixtures("process_engine")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = write_every_type(tmp_path / "t.lance")
    pennon.open(path).create_index("i64", ranges=3, batch_size=64)
    SHARED_CACHE.clear()
    return path


def files(uri: str, pattern: str) -> list[Path]:
    return sorted(Path(uri).glob(f"_indices/*/{pattern}"))


def zero_tail(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-200] + bytes(200))


def flip_values(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(0, 400, 7):
        content[at] ^= 0xFF
    path.write_bytes(bytes(content))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], metadata: dict[str, str] | None = None) -> None:
    """Write a file anew with other content but a sound container, as a faulty writer would."""
    reader = LanceFileReader(str(path))
    table, kept = reader.read_all().to_table(), reader.metadata().schema.metadata or {}
    table = change(table)
    path.unlink()
    with LanceFileWriter(str(path), table.schema.remove_metadata()) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
        for key, value in {**{k.decode(): v.decode() for k, v in kept.items()}, **(metadata or {})}.items():
            writer.add_schema_metadata(key, value)


def reversed_rows(table: pa.Table) -> pa.Table:
    return table.take(list(range(table.num_rows))[::-1])


DAMAGE: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a missing lookup": ("page_lookup.lance", Path.unlink),
    "a truncated lookup": ("page_lookup.lance", truncate),
    "a lookup without footer": ("page_lookup.lance", zero_tail),
    "a lookup out of order": ("page_lookup.lance", lambda p: rewrite(p, reversed_rows)),
    "a lookup that lost pages": ("page_lookup.lance", lambda p: rewrite(p, lambda t: t.slice(0, 5))),
    "a lookup with an empty range": (
        "page_lookup.lance",
        lambda p: rewrite(p, lambda t: t, {"page_num_per_range_partition": json.dumps([[0, 40], [1 << 32, 0]])}),
    ),
    "a lookup with absurd metadata": ("page_lookup.lance", lambda p: rewrite(p, lambda t: t, {"batch_size": "-3"})),
    "a lookup with broken JSON": (
        "page_lookup.lance",
        lambda p: rewrite(p, lambda t: t, {"page_num_per_range_partition": "[[0,"}),
    ),
    "a missing page file": ("part_*_page_data.lance", Path.unlink),
    "a truncated page file": ("part_*_page_data.lance", truncate),
    "a page file out of order": ("part_*_page_data.lance", lambda p: rewrite(p, reversed_rows)),
    "a page file that lost rows": ("part_*_page_data.lance", lambda p: rewrite(p, lambda t: t.slice(0, 70))),
    "a page file with flipped bytes": ("part_*_page_data.lance", flip_values),
    "a page file of another type": (
        "part_*_page_data.lance",
        lambda p: rewrite(p, lambda t: t.set_column(0, "values", t["values"].cast(pa.string()))),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_answered_by_a_scan(damage: str, uri: str) -> None:
    pattern, harm = DAMAGE[damage]
    before = lance.dataset(uri).version
    for path in files(uri, pattern):
        harm(path)
    with pytest.warns(DamagedIndexWarning, match=r"index 'i64_idx' of .*t\.lance is damaged"):
        explanation = pennon.open(uri).explain("i64 < 0", analyze=True)
    assert explanation.indices == ()
    assert explanation.skipped[0].index == "i64_idx"
    for filter in FILTERS["i64"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamagedIndexWarning)
            found, counted = pennon.open(uri).scan(filter, ["id"]), pennon.open(uri).count(filter)
        expected = full_scan(uri, filter)
        assert sorted(found["id"].to_pylist()) == expected, filter
        assert counted == len(expected), filter
    assert lance.dataset(uri).version == before


def test_damage_is_told_once_per_handle(uri: str) -> None:
    files(uri, "page_lookup.lance")[0].unlink()
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning):
        table.scan("i64 < 0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.scan("i64 < 0")
    assert "cannot read" in str(table.explain("i64 < 0"))


def test_swapped_page_files_are_noticed(uri: str) -> None:
    first, *_, last = files(uri, "part_*_page_data.lance")
    spare = first.with_suffix(".spare")
    shutil.move(first, spare)
    shutil.move(last, first)
    shutil.move(spare, last)
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning):
        assert sorted(table.scan("i64 < 0", ["id"])["id"].to_pylist()) == full_scan(uri, "i64 < 0")


def test_an_undamaged_segment_is_still_used(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance")
    table = pennon.open(uri)
    table.create_index("i64", fragment_ids=[0, 2])
    [index] = table.indices()
    table.create_index("i64", fragment_ids=[3, 4])
    SHARED_CACHE.clear()
    (Path(uri) / "_indices" / index.segments[0].uuid / "page_lookup.lance").unlink()
    with pytest.warns(DamagedIndexWarning):
        explanation = pennon.open(uri).explain("i64 = 0", analyze=True)
    assert set(explanation.scanned_fragments) == {0, 2}
    assert explanation.indexed_fragments == 2
    assert explanation.rows_returned == len(full_scan(uri, "i64 = 0"))


def test_recreating_repairs(uri: str) -> None:
    files(uri, "page_lookup.lance")[0].unlink()
    table = pennon.open(uri)
    table.create_index("i64", ranges=2)
    assert sorted(table.scan("i64 < 0", ["id"])["id"].to_pylist()) == full_scan(uri, "i64 < 0")
