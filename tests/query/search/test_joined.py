"""Small segments of one model are searched as one, with the answers that each of them has by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.index.cache import SHARED_CACHE
from pennon.query.search import joined
from tests.support.neighbors import KINDS, index, queries, rows, write

DELTAS = 5
ASKED: list[dict[str, Any]] = [
    {"nprobes": 3},
    {"nprobes": 100},
    {"filter": "part < 4"},
    {"filter": "part = 7 and id > 300", "k": 40},
    {"nprobes": 2, "refine_factor": 3},
    {"k": 700},
]


@pytest.fixture(params=[*KINDS, "RQ1"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = request.param
    path = write(tmp_path / "t.lance", rows(900), enable_stable_row_ids=kind == "IVF_SQ")
    if kind == "RQ1":
        lance.dataset(path).create_index("v", "IVF_RQ", name="x", num_partitions=6, num_bits=1)
    else:
        index(path, kind, "cosine" if kind == "IVF_PQ" else "l2")
    for number in range(DELTAS):
        start = 900 + 60 * number
        lance.write_dataset(rows(60, start, seed=start), path, mode="append")
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(path).delete("id % 7 = 3")
    return path


def answers(uri: str) -> list[pa.Table]:
    table = pennon.open(uri, engine="local")
    found: list[pa.Table] = []
    for given in ASKED:
        options: dict[str, Any] = {"k": 10, **given}
        found += [table.search("v", query, **options) for query in queries(4)]
        found.append(table.search_batch("v", queries(40), **options))
    return found


def test_answers_are_those_of_single_segments(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = answers(uri)
    monkeypatch.setattr(joined, "SMALL_PARTITION", 0)
    apart = answers(uri)
    for one, other in zip(together, apart, strict=True):
        assert one.schema == other.schema
        assert one["id"].to_pylist() == other["id"].to_pylist()
        assert one["_distance"].to_pylist() == pytest.approx(other["_distance"].to_pylist(), rel=1e-5, abs=1e-5)


def test_explain_reports_every_segment(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reported() -> list[tuple[int, int, int | None]]:
        table = pennon.open(uri, engine="local")
        plan = table.explain_search("v", queries(1)[0], 10, nprobes=100, filter="part < 9", analyze=True)
        return [(use.probed, use.rows, use.rows_scored) for use in plan.segments]

    together = reported()
    assert len(together) == DELTAS + 1
    monkeypatch.setattr(joined, "SMALL_PARTITION", 0)
    assert together == reported()


def test_a_damaged_segment_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.lance", rows(900))
    index(path, "IVF_FLAT")
    lance.write_dataset(rows(60, 900, seed=5), path, mode="append")
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    expected = pennon.open(path, engine="local").search("v", queries(1)[0], 10, use_index=False)
    delta = pennon.open(path).indices()[0].segments[-1]
    file = Path(path) / "_indices" / delta.uuid / "auxiliary.idx"
    # Row ids, which then name rows of no fragment; the footer still is what it was.
    content = bytearray(file.read_bytes())
    content[: len(content) // 4] = b"\x7f" * (len(content) // 4)
    file.write_bytes(content)
    SHARED_CACHE.clear()
    table = pennon.open(path, engine="local")
    with pytest.warns(DamagedIndexWarning):
        found = table.search("v", queries(1)[0], 10, nprobes=100)
    assert found["id"].to_pylist() == expected["id"].to_pylist()


def test_joined_partitions_are_kept(uri: str) -> None:
    table = pennon.open(uri, engine="local")
    query = queries(1)[0]
    table.search("v", query, 10, nprobes=100)
    again = table.explain_search("v", query, 10, nprobes=100, analyze=True)
    assert sum(use.loaded or 0 for use in again.segments) == 0
