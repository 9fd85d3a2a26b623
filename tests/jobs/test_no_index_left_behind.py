"""What Pennon cannot rewrite keeps its coverage through a compaction, and nothing but `drop` gives it up."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pytest

import pennon
from pennon.errors import CompactionWarning, DamagedIndexWarning, PennonWarning
from pennon.jobs.compact.plan import Effect
from pennon.table import Table
from tests.support.pylance_kinds import KINDS, NAME, QUERY, rows

pytestmark = pytest.mark.usefixtures("process_engine")

COLUMNS = ("k", "text", "vector", "several", "point")
NEAREST = {"column": "vector", "q": QUERY, "k": 5, "nprobes": 2, "ef": 300, "refine_factor": 60}


def make(path: Path, foreign: str, *, stable: bool = False, graph: bool = False) -> Table:
    """Four fragments with deleted rows, an index of pylance's alone, and a B-tree, or a graph beside it."""
    for number in range(4):
        mode = "append" if number else "create"
        lance.write_dataset(rows(60 * number, 60, COLUMNS), path, mode=mode, enable_stable_row_ids=stable)
    KINDS[foreign].build(str(path))
    table = pennon.open(path)
    table.create_index("k", batch_size=32)
    if graph:
        table.create_index("vector", "IVF_HNSW_SQ", num_partitions=2)
    lance.dataset(path).delete("id % 9 = 0")
    return table.refresh()


def covered(table: Table, name: str = NAME) -> bool:
    """Whether pylance's view of an index covers all fragments."""
    dataset = lance.dataset(table.uri)
    [index] = [each for each in dataset.describe_indices() if each.name == name]
    fragments = set().union(*(segment.fragment_ids for segment in index.segments))
    return fragments >= {fragment.fragment_id for fragment in dataset.get_fragments()}


def recorded(table: Table) -> int:
    reuse = table.fragment_reuse()
    return len(reuse.versions) if reuse is not None else 0


def effects(table: Table, remap: str = "immediate") -> dict[str, Effect]:
    return {each.index: each.effect for each in table.plan_compact(remap=remap).indices}


def test_what_can_be_is_remapped_and_the_rest_recorded(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance", "MINHASHLSH")
    before, asked = table.version, KINDS["MINHASHLSH"].ask(lance.dataset(table.uri))
    assert effects(table) == {NAME: Effect.RECORDED, "k_idx": Effect.REMAPPED}
    plan = table.compact().plan
    assert plan.records
    assert "x not rewritten, kept by the Fragment Reuse Index" in str(plan)
    # pylance reserves the fragment ids, commits the fragments and their address map, and then the B-tree follows.
    assert table.version == before + 3
    assert {index.name: index.compactions_behind for index in table.indices()}["k_idx"] == 0
    assert covered(table)
    assert covered(table, "k_idx")
    assert recorded(table) == 1
    assert KINDS["MINHASHLSH"].ask(lance.dataset(table.uri)) == asked != []
    assert table.count("k = 3") == lance.dataset(table.uri).count_rows("k = 3")
    assert table.trim_fragment_reuse().versions_removed == 0


def test_again_and_again(tmp_path: Path) -> None:
    """Every compaction adds to the Fragment Reuse Index, until pylance drops the index that needs it."""
    table = make(tmp_path / "t.lance", "MINHASHLSH")
    table.compact(target_rows_per_fragment=100)
    lance.dataset(table.uri).delete("id % 5 = 0")
    expected = KINDS["MINHASHLSH"].ask(lance.dataset(table.uri))
    table.refresh().compact(target_rows_per_fragment=1000)
    assert recorded(table) == 2
    assert covered(table)
    assert KINDS["MINHASHLSH"].ask(lance.dataset(table.uri)) == expected != []
    table.drop_index(NAME)
    assert table.trim_fragment_reuse().versions_removed == 2
    assert table.count("k = 3") == lance.dataset(table.uri).count_rows("k = 3")


def test_a_graph_is_searched_by_pylance_before_and_after(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance", "MINHASHLSH", graph=True)
    expected = lance.dataset(table.uri).to_table(nearest=NEAREST, columns=["id", "_distance"])["id"].to_pylist()
    first = table.version
    table.compact()
    for version in range(first, table.version + 1):
        dataset = lance.dataset(table.uri, version=version)
        assert dataset.to_table(nearest=NEAREST, columns=["id", "_distance"])["id"].to_pylist() == expected
    assert len(lance.dataset(table.uri).get_fragments()) == 1
    assert covered(table)
    assert covered(table, "vector_idx")


@pytest.mark.parametrize("remap", ["immediate", "deferred"])
def test_what_neither_follows_nor_is_rewritten_holds_its_fragments_back(tmp_path: Path, remap: str) -> None:
    """pylance does not map the addresses of an FM index."""
    foreign = "FM"
    table = make(tmp_path / "t.lance", foreign)
    asked, version = KINDS[foreign].ask(lance.dataset(table.uri)), table.version
    plan = table.plan_compact(remap=remap)
    assert (plan.due, plan.held_back, plan.obstacles[0].index) == (False, (0, 1, 2, 3), NAME)
    with pytest.warns(CompactionWarning, match="remap='drop' compacts them"):
        table.compact(remap=remap)
    assert table.refresh().version == version
    assert covered(table)
    table.compact(remap="drop")
    assert len(lance.dataset(table.uri).get_fragments()) == 1
    assert KINDS[foreign].ask(lance.dataset(table.uri)) == asked


def test_on_stable_row_ids(tmp_path: Path) -> None:
    """Indices by row id stay as they are; one by address that cannot be rewritten holds back what it covers."""
    table = make(tmp_path / "ids.lance", "MINHASHLSH", stable=True)
    asked = KINDS["MINHASHLSH"].ask(lance.dataset(table.uri))
    assert effects(table) == {NAME: Effect.KEPT, "k_idx": Effect.REMAPPED}
    table.compact()
    assert covered(table)
    assert KINDS["MINHASHLSH"].ask(lance.dataset(table.uri)) == asked

    table = make(tmp_path / "addresses.lance", "FM", stable=True)
    assert table.plan_compact().held_back == (0, 1, 2, 3)
    with pytest.warns(CompactionWarning, match="names their rows by address"):
        table.compact()
    assert covered(table)


@pytest.mark.parametrize("stable", [False, True])
def test_a_damaged_segment_loses_nothing(tmp_path: Path, stable: bool) -> None:
    """It is built again from the data, or on stable row ids its fragments wait until it has been."""
    path = tmp_path / "t.lance"
    for number in range(4):
        mode = "append" if number else "create"
        lance.write_dataset(rows(60 * number, 60, ("k",)), path, mode=mode, enable_stable_row_ids=stable)
    table = pennon.open(path)
    table.create_index("k", batch_size=32)
    [pages] = path.glob("_indices/*/*page_data.lance")
    pages.write_bytes(pages.read_bytes()[:-50])
    with pytest.warns(PennonWarning) as found:
        table.compact()
    category = CompactionWarning if stable else DamagedIndexWarning
    assert [warning.category for warning in found] == [category]
    assert len(lance.dataset(path).get_fragments()) == (4 if stable else 1)
    assert covered(table, "k_idx")
    assert table.fragment_reuse() is None
    if stable:
        table.optimize_indices()
        table.compact()
    assert table.audit().ok
    assert len(lance.dataset(path).get_fragments()) == 1
    expected = np.flatnonzero(np.arange(240) % 7 == 3).tolist()
    assert sorted(table.scan("k = 3", ["id"])["id"].to_pylist()) == expected
