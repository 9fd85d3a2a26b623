"""Two maintainers and a writer on one table: nothing is lost, nothing comes back, every answer is right."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import CommitConflict, CoverageWarning
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.vector.vectors import to_lists
from pennon.jobs.compact import compact
from pennon.jobs.maintain import MaintenancePolicy
from pennon.jobs.shared import commit as publish
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")

DIM = 8


def rows(count: int, start: int) -> pa.Table:
    rng = np.random.default_rng(start)
    return pa.table(
        {
            "id": pa.array(np.arange(start, start + count)),
            "k": pa.array(rng.integers(0, 20, count)),
            "v": to_lists(rng.standard_normal((count, DIM)).astype(np.float32)),
        }
    )


def make(path: Path, fragments: int = 4, *, stable: bool = False) -> pennon.Table:
    for number in range(fragments):
        mode = "append" if number else "create"
        lance.write_dataset(rows(40, number * 40), path, mode=mode, enable_stable_row_ids=stable)
    table = pennon.open(path)
    table.create_index("k", batch_size=16)
    table.create_index("v", "IVF_FLAT", num_partitions=2, max_iters=2)
    return table


def check(uri: str) -> None:
    table = pennon.open(uri)
    for filter in ("k = 7", "k < 5", "k between 10 and 12", "k in (1, 19)"):
        expected = full_scan(uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert stock_answer(uri, filter)[0] == expected, f"stock: {filter}"
    everything = lance.dataset(uri).to_table(columns=["id", "v"])
    vectors = np.stack(everything["v"].combine_chunks().to_numpy(zero_copy_only=False))
    for query in np.random.default_rng(1).standard_normal((3, DIM)).astype(np.float32):
        order = np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:5]
        nearest = table.search("v", query, 5, nprobes=10, columns=["id"])["id"].to_pylist()
        assert sorted(nearest) == sorted(everything["id"].to_numpy()[order].tolist())


def together(*jobs: Callable[[], None]) -> None:
    """Run all of them at once; what any of them raises is raised here."""
    failures: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("stable", [False, True])
def test_two_maintainers_and_a_writer(tmp_path: Path, stable: bool) -> None:
    uri = make(tmp_path / "t.lance", stable=stable).uri
    policy = MaintenancePolicy(
        remap="immediate" if stable else "deferred",
        min_fragments_to_compact=2,
        max_reuse_versions=1,
        materialize_deletions_threshold=0.05,
    )

    def write() -> None:
        for step in range(6):
            lance.write_dataset(rows(25, 10_000 + step * 25), uri, mode="append")
            retried(lambda step=step: lance.dataset(uri).delete(f"id % 17 = {step}"))
            retried(lambda step=step: lance.dataset(uri).update({"k": "k + 1"}, where=f"id % 23 = {step}"))

    def keep() -> None:
        table = pennon.open(uri)
        for _ in range(3):
            table.maintain(policy)

    with warnings.catch_warnings():
        # What was lost to a writer is said, and covered by a later pass.
        warnings.simplefilter("ignore", CoverageWarning)
        together(write, keep, keep)
        check(uri)
        table = pennon.open(uri)
        for _ in range(3):
            table.maintain(policy)
    assert [index.coverage for index in table.indices()] == [1.0, 1.0]
    check(uri)
    assert not any(decision.due for decision in table.maintain(policy, dry_run=True).decisions[:3])


def retried(job: Callable[[], Any]) -> None:
    """As writers of stock Lance do."""
    for attempt in range(20):
        try:
            job()
            return
        except OSError as error:
            if attempt == 19 or "onflict" not in str(error):
                raise


def while_working(monkeypatch: pytest.MonkeyPatch, happening: Callable[[], Any]) -> None:
    """Something happens after files are written and before they are committed."""
    original, done = publish.commit_segments, [False]

    def commit(base: Snapshot, *args: Any) -> Snapshot:
        if not done[0]:
            done[0] = True
            happening()
        return original(base, *args)

    monkeypatch.setattr(publish, "commit_segments", commit)


def test_a_dropped_index_stays_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t.lance")
    lance.write_dataset(rows(30, 900), table.uri, mode="append")
    while_working(monkeypatch, lambda: lance.dataset(table.uri).drop_index("k_idx"))
    with pytest.raises(CommitConflict, match="left the table"):
        table.optimize_indices(index_names=["k_idx"])
    assert [index.name for index in table.refresh().indices()] == ["v_idx"]
    check(table.uri)
    named = {segment.uuid for index in table.indices() for segment in index.segments}
    assert {p.name for p in (Path(table.uri) / "_indices").iterdir()} - named <= old_directories(table.uri)


def old_directories(uri: str) -> set[str]:
    """Of segments that older versions still have."""
    found: set[str] = set()
    for version in lance.dataset(uri).versions():
        snapshot = Snapshot.open(Location.of(uri), version["version"])
        found |= {segment.uuid for segment in snapshot.manifest.segments}
    return found


def test_a_replaced_index_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t.lance")
    lance.write_dataset(rows(30, 900), table.uri, mode="append")
    while_working(
        monkeypatch,
        lambda: lance.dataset(table.uri).create_scalar_index("k", "BTREE", name="k_idx", replace=True),
    )
    with pytest.raises(CommitConflict):
        table.optimize_indices(index_names=["k_idx"])
    [index] = [index for index in table.refresh().indices() if index.name == "k_idx"]
    assert (len(index.segments), index.coverage) == (1, 1.0)
    check(table.uri)


@pytest.mark.parametrize(
    "happening",
    [
        lambda uri: lance.dataset(uri).delete("id % 3 = 0"),
        lambda uri: lance.write_dataset(rows(20, 5000), uri, mode="append"),
        lambda uri: lance.dataset(uri).update({"k": "99"}, where="id % 5 = 0"),
        lambda uri: lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True),
    ],
    ids=["delete", "append", "update", "deferred compaction"],
)
@pytest.mark.parametrize("verb", ["optimize_indices", "catch_up_indices"])
def test_work_survives_what_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happening: Callable[[str], Any], verb: str
) -> None:
    table = make(tmp_path / "t.lance")
    lance.write_dataset(rows(200, 900), table.uri, mode="append")
    if verb == "catch_up_indices":
        lance.dataset(table.uri).delete("id % 7 = 0")
        lance.dataset(table.uri).optimize.compact_files(target_rows_per_fragment=100, defer_index_remap=True)
    before = pennon.open(table.uri).indices()[0].segments[0].uuid
    while_working(monkeypatch, lambda: happening(table.uri))
    getattr(table, verb)()
    assert before not in {s.uuid for index in table.refresh().indices() for s in index.segments}
    check(table.uri)


@pytest.mark.parametrize("remap", ["immediate", "deferred", "drop"])
def test_compaction_leaves_what_others_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remap: str) -> None:
    """Fragments 0 to 3 are indexed, 4 and 5 not, so that there are two groups; one of them is spoilt meanwhile."""
    table = make(tmp_path / "t.lance")
    for start in (900, 930):
        lance.write_dataset(rows(30, start), table.uri, mode="append")
    original, done = compact.still_valid, [False]

    def meanwhile(base: Snapshot, group: Any) -> bool:
        if not done[0]:
            done[0] = True
            lance.dataset(table.uri).delete("id = 3")
        return original(base.latest(), group)

    monkeypatch.setattr(compact, "still_valid", meanwhile)
    with pytest.warns(CoverageWarning, match="were changed while they were compacted"):
        table.compact(remap=remap, target_rows_per_fragment=160)
    fragments = [fragment.fragment_id for fragment in lance.dataset(table.uri).get_fragments()]
    assert fragments[:4] == [0, 1, 2, 3]
    assert len(fragments) == 5
    assert [index.coverage for index in table.indices()] == pytest.approx([159 / 219] * 2)
    check(table.uri)


def test_compaction_that_is_spoilt_as_a_whole_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t.lance")
    files = {path.name for path in (Path(table.uri) / "data").iterdir()}
    monkeypatch.setattr(compact, "still_valid", lambda *_: False)
    with pytest.raises(CommitConflict, match="changed in the meantime"):
        table.compact(target_rows_per_fragment=160)
    assert {path.name for path in (Path(table.uri) / "data").iterdir()} == files
    check(table.uri)
