"""A damaged or unknown vector index costs a warning and time, never a wrong answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from pyroaring import FrozenBitMap

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.format.commit import commit_segments
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from tests.support.damage import rewrite, set_metadata, with_nulls
from tests.support.neighbors import brute_force, check, index, queries, rows, write

QUERY = queries(1)[0]
METRIC = "cosine"


@pytest.fixture(params=["IVF_FLAT", "IVF_HNSW_SQ"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = write(tmp_path / "t.lance", rows(900))
    index(path, request.param, METRIC, partitions=3)
    SHARED_CACHE.clear()
    return path


def files(uri: str, name: str) -> list[Path]:
    return sorted(Path(uri).glob(f"_indices/*/{name}"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_metadata(path: Path) -> None:
    """Bits of the schema's metadata, near the end of the file."""
    content = bytearray(path.read_bytes())
    at = content.find(b"distance_type")
    content[at + 2] ^= 0x04
    path.write_bytes(bytes(content))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "truncated": truncate,
    "empty": lambda path: path.write_bytes(b""),
    "flipped": flip_metadata,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["index.idx", "auxiliary.idx"])
def test_damage_is_noticed_and_every_row_measured(uri: str, name: str, damage: str) -> None:
    for path in files(uri, name):
        DAMAGE[damage](path)
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning, match=r"index 'x' of .*t\.lance is damaged"):
        found = table.search("v", QUERY)
    # Distances still are what the index meant by them.
    check(found, brute_force(uri, QUERY, 10, METRIC))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(table.search("v", QUERY, filter="part < 5"), brute_force(uri, QUERY, 10, METRIC, "part < 5"))
        check(table.search("v", QUERY, index="x"), brute_force(uri, QUERY, 10, METRIC))
        assert table.search_batch("v", [QUERY, QUERY]).num_rows == 20
        plan = table.explain_search("v", QUERY)
    assert plan.index is None
    assert plan.measured_rows == 900
    assert [skipped.index for skipped in plan.skipped] == ["x"]
    assert "skipped  x, segment" in str(plan)


def test_damage_inside_a_partition(tmp_path: Path) -> None:
    """The files open, but a partition cannot be read."""
    uri = write(tmp_path / "t.lance", rows(900))
    index(uri, "IVF_PQ", METRIC, partitions=3)
    rewrite(uri, "auxiliary.idx", with_nulls)
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning, match="NULLs in the column _rowid"):
        found = table.search_batch("v", queries(40), 5, nprobes=3)
    check(found.slice(0, 5), brute_force(uri, queries(40)[0], 5, METRIC))


def test_rows_that_no_fragment_has(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(900))
    index(uri, "IVF_PQ", METRIC, partitions=3)
    rewrite(uri, "auxiliary.idx", lambda t, *_: t.set_column(0, "_rowid", [np.arange(900, dtype=np.uint64)]))
    with pytest.warns(DamagedIndexWarning, match="beyond the end"):
        found = pennon.open(uri).search("v", QUERY)
    check(found, brute_force(uri, QUERY, 10, METRIC))


def test_an_undamaged_segment_is_still_used(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(900))
    index(uri, "IVF_FLAT", METRIC, partitions=3)
    first = files(uri, "index.idx")
    lance.write_dataset(rows(300, 900, seed=1), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    truncate(first[0])
    table = pennon.open(uri)
    with pytest.warns(DamagedIndexWarning):
        check(table.search("v", QUERY, nprobes=9), brute_force(uri, QUERY, 10, METRIC))
    plan = table.explain_search("v", QUERY)
    assert (len(plan.segments), plan.measured_rows) == (1, 900)


def test_threads_meet_the_same_damage(uri: str) -> None:
    truncate(files(uri, "auxiliary.idx")[0])
    table = pennon.open(uri)
    table.count()
    with warnings.catch_warnings(record=True) as told, ThreadPoolExecutor(6) as threads:
        warnings.simplefilter("always")
        found = list(threads.map(lambda _: table.search("v", QUERY, columns=["id"]), range(12)))
    assert [each.category for each in told] == [DamagedIndexWarning]
    for each in found:
        check(each, brute_force(uri, QUERY, 10, METRIC))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ('{"type":"IVF_MAGIC","distance_type":"cosine"}', "IVF_MAGIC"),
        ('{"type":"IVF_PQ","distance_type":"hamming"}', "hamming"),
    ],
)
def test_what_is_unknown_is_passed_over_quietly(tmp_path: Path, metadata: str, reason: str) -> None:
    uri = write(tmp_path / "t.lance", rows(600))
    index(uri, "IVF_FLAT", METRIC, partitions=3)
    rewrite(uri, "index.idx", set_metadata("lance:index", metadata))
    table = pennon.open(uri)
    check(table.search("v", QUERY), brute_force(uri, QUERY, 10, METRIC))
    (skipped,) = table.explain_search("v", QUERY).skipped
    assert reason in skipped.reason


def test_a_version_unknown_here(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(600))
    index(uri, "IVF_FLAT", METRIC, partitions=3)
    snapshot = Snapshot.open(Location.of(uri))
    [segment] = snapshot.manifest.user_segments
    commit_segments(snapshot, [replace(segment, index_version=9)], [])
    table = pennon.open(uri)
    check(table.search("v", QUERY), brute_force(uri, QUERY, 10, METRIC))
    assert [s.reason for s in table.explain_search("v", QUERY).skipped] == ["unsupported IVF_FLAT version 9"]


def test_segments_of_another_metric_are_passed_over(tmp_path: Path) -> None:
    """Under one name, with metrics that do not compare."""
    uri = write(tmp_path / "t.lance", rows(900))
    index(uri, "IVF_FLAT", METRIC, partitions=3)
    index(uri, "IVF_FLAT", "l2", "y", partitions=3)
    snapshot = Snapshot.open(Location.of(uri))
    cosine, l2 = snapshot.manifest.user_segments
    last = FrozenBitMap([2])
    parts = [replace(cosine, fragments=cosine.fragments - last), replace(l2, name="x", fragments=last)]
    commit_segments(snapshot, parts, [])
    table = pennon.open(uri)
    check(table.search("v", QUERY, nprobes=9), brute_force(uri, QUERY, 10, METRIC))
    plan = table.explain_search("v", QUERY)
    assert plan.measured_fragments == (2,)
    assert [skipped.reason for skipped in plan.skipped] == ["is for the metric l2"]
