"""Zone maps for which pylance writes the zones of appended rows into data files, and takes them from there."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from lance.indices import IndexConfig

import pennon
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.zones.details import ZoneMapDetails
from pennon.testing.oracles import full_scans, pylance_answer

pytestmark = pytest.mark.usefixtures("process_engine")

FILTERS = (
    "s = 'v0007'",
    "s < 'v0020'",
    "s is null",
    "s is not null",
    "s like 'v01%'",
    "s between 'v0100' and 'v0110'",
    "s = 'new'",
)


def rows(start: int, count: int = 100) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "s": [None if n % 23 == 5 else f"v{n * 7 % 1000:04d}" for n in numbers]})


def append(uri: str, start: int) -> None:
    lance.write_dataset(rows(start), uri, mode="append")
    assert seeded_files(uri), "pylance wrote no zones into the data file"


def seeded_files(uri: str) -> int:
    found = [LanceFileReader(str(path)).metadata().schema.metadata or {} for path in Path(uri).glob("data/*.lance")]
    return sum(b"lance.seed.s" in metadata for metadata in found)


def check(uri: str) -> None:
    """Answers of Pennon and pylance are those of a scan, all of the table is covered, and seeds are still asked for."""
    table, dataset = pennon.open(uri), lance.dataset(uri)
    for filter, expected in full_scans(dataset, FILTERS).items():
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert pylance_answer(uri, filter) == (expected, True), filter
    manifest = Snapshot.open(Location.of(uri)).manifest
    assert set().union(*(segment.fragments for segment in manifest.user_segments)) >= set(manifest.live)
    for segment in manifest.user_segments:
        assert ZoneMapDetails.from_bytes(segment.details) == ZoneMapDetails(50, use_seeds=True, has_null_bitmap=True)


@pytest.mark.parametrize("stable", [False, True])
def test_seeds_and_pennons_verbs(tmp_path: Path, stable: bool) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 400), uri, max_rows_per_file=200, enable_stable_row_ids=stable)
    lance.dataset(uri).create_scalar_index("s", IndexConfig("zonemap", {"rows_per_zone": 50, "use_seeds": True}))
    append(uri, 400)
    pennon.open(uri).optimize_indices()
    check(uri)
    append(uri, 500)
    lance.dataset(uri).delete("id % 7 = 3")
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    check(uri)
    pennon.open(uri).compact(target_rows_per_fragment=1000)
    check(uri)
    # pylance takes the seeds of rows that were appended next to what Pennon wrote.
    append(uri, 600)
    lance.dataset(uri).delete("id % 11 = 3")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    check(uri)
    # Values that changed after the seeds were written.
    append(uri, 700)
    pennon.open(uri).update_column("s", "'new'")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    check(uri)
    assert pennon.open(uri).audit().ok
