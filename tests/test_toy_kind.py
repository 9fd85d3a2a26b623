"""A kind of index is two objects and a line in each registry: a toy one goes through its whole life without another
change."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index import registry
from pennon.jobs.registry import JOBS
from tests.support.cli import run
from tests.support.tables import full_scan, stock_answer
from tests.support.toy_kind import TOY, Toy, ToyJobs

pytestmark = pytest.mark.usefixtures("process_engine")

FILTERS = ["k = 7", "k < 3", "k is null", "k between 4 and 6", "k != 2", "k in (1, 9) or k is null"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", (*registry.KINDS, TOY))
    monkeypatch.setitem(JOBS, TOY, ToyJobs)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Without stable row ids: there pylance takes every index it does not know for one by id."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 300), path, max_rows_per_file=50)
    pennon.open(path).create_index("k", "TOY")
    return path


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([None if i % 11 == 0 else i % 10 for i in ids])})


def check(uri: str) -> None:
    table = pennon.open(uri)
    for filter in FILTERS:
        expected = full_scan(uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert stock_answer(uri, filter)[0] == expected, filter
    report = table.audit()
    assert report.ok, report


def test_it_is_created_listed_used_and_dropped(uri: str) -> None:
    table = pennon.open(uri)
    [index] = table.indices()
    assert (index.type, index.coverage) == ("TOY", 1.0)
    assert "k_idx" in str(table.explain("k = 7"))
    check(uri)
    table.drop_index("k_idx")
    assert table.indices() == []
    check(uri)


@pytest.mark.parametrize("merge", [None, 0, 9])
def test_it_is_kept_up(uri: str, merge: int | None) -> None:
    lance.dataset(uri).delete("id % 7 = 3")
    lance.write_dataset(rows(300, 60), uri, mode="append")
    table = pennon.open(uri)
    table.optimize_indices(num_indices_to_merge=merge)
    assert table.indices()[0].coverage == 1.0
    check(uri)
    table.update_column("k", "k + 1", where="id < 100")
    table.optimize_indices()
    assert table.indices()[0].coverage == 1.0
    check(uri)


def test_it_follows_deferred_compactions(uri: str) -> None:
    lance.dataset(uri).delete("id % 7 = 3")
    table = pennon.open(uri)
    for rows_per_fragment in (120, 1000):
        table.compact(remap="deferred", target_rows_per_fragment=rows_per_fragment)
        assert table.indices()[0].coverage == 1.0
        check(uri)
    table.catch_up_indices()
    assert table.trim_fragment_reuse().versions_removed == 2
    assert table.fragment_reuse() is None
    check(uri)


@pytest.mark.parametrize("remap", ["immediate", "drop"])
def test_it_bears_other_compactions(uri: str, remap: str) -> None:
    """pylance, which plans them, leaves alone what an index covers that it does not know."""
    lance.write_dataset(rows(300, 20), uri, mode="append")
    lance.write_dataset(rows(320, 20), uri, mode="append")
    table = pennon.open(uri)
    table.compact(remap=remap, target_rows_per_fragment=120)
    check(uri)
    table.maintain()
    assert table.indices()[0].coverage == 1.0
    check(uri)


def test_it_is_audited_repaired_and_reported(uri: str) -> None:
    table = pennon.open(uri)
    [segment] = table.indices()[0].segments
    (Path(uri) / "_indices" / segment.uuid / "toy.lance").unlink()
    assert not table.audit().ok
    assert table.audit(repair=True).ok
    check(uri)
    assert "TOY" in table.report()


def notes(uri: str) -> list[str]:
    segments = Snapshot.open(Location.of(uri), None).manifest.user_segments
    return [segment.details.decode() for segment in segments]


def test_its_option_is_a_keyword_a_field_and_an_option_of_the_command_line(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("k", "toy", note="by keyword")
    assert notes(uri) == ["by keyword"]
    table.create_index("k", Toy(note="by object"))
    assert notes(uri) == ["by object"]
    assert table.plan_index("k", Toy(note="planned")).to_dict()["note"] == "planned"
    done = run("create-index", uri, "k", "--type", "toy", "--note", "by command")
    assert (done.exit_code, notes(uri)) == (0, ["by command"]), done.output
    lance.write_dataset(rows(300, 60), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    assert notes(uri) == ["by command"] * 2


def test_its_option_is_checked_and_documented(uri: str) -> None:
    table = pennon.open(uri)
    with pytest.raises(InvalidArgument, match="note must be a string, not 7"):
        table.create_index("k", "TOY", note=7)
    with pytest.raises(
        InvalidArgument, match=r"TOY indices take no option 'not_'\. Did you mean note\? They take: note"
    ):
        table.create_index("k", "TOY", not_="x")
    with pytest.raises(InvalidArgument, match="BTREE indices take no option 'note'"):
        table.create_index("k", "BTREE", note="x")
    shown = " ".join(run("create-index", "--help").output.split())
    assert "ivf_hnsw_sq or toy" in shown
    assert "--note TEXT A remark to keep in the manifest. [TOY: default no remark]" in shown
    assert "note: A remark to keep in the manifest. [default no remark]" in (Toy.__doc__ or "")
