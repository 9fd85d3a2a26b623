"""Filters of a search: the nearest of the rows they select, however those are found."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import pennon
from pennon.errors import InvalidFilter
from pennon.query.search import choice
from tests.support.neighbors import KINDS, brute_force, check, index, queries, rows, write

ALL = 1000
FILTERS = [
    "part = 3",
    "part < 9",
    "id < 900 and word = 'w1'",
    "id in (5, 17, 1400)",
    "id % 97 = 4",
    "id > 100000",
    "word like 'w%'",
    "part = 3 or word = 'w2'",
    "id >= 0",
]


@pytest.fixture(params=["measured when few", "always probed"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "always probed":
        monkeypatch.setattr(choice, "VERY_FEW", 0)
        monkeypatch.setattr(choice, "FEW_SELECTED", 0)
        monkeypatch.setattr(choice, "TAKEN", 1e12)
    return write(tmp_path / "t.lance", rows(1500), fragments=4)


@pytest.mark.parametrize("scalar", [(), ("id", "part"), ("id", "part", "word")], ids=str)
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_HNSW_FLAT"])
def test_the_nearest_of_the_selected_rows(uri: str, kind: str, scalar: tuple[str, ...]) -> None:
    index(uri, kind)
    for column in scalar:
        lance.dataset(uri).create_scalar_index(column, "BTREE")
    lance.write_dataset(rows(200, 1500, seed=2), uri, mode="append")
    lance.dataset(uri).delete("id % 6 = 1")
    table, asked = pennon.open(uri), queries(3)
    for filter in FILTERS:
        batch = table.search_batch("v", asked, 7, nprobes=ALL, filter=filter, ef=600)
        expected = [brute_force(uri, query, 7, filter=filter) for query in asked]
        for number, query in enumerate(asked):
            found = table.search("v", query, 7, nprobes=ALL, filter=filter, ef=600)
            check(found, expected[number])
            assert found.num_rows == len(expected[number][0])
        assert batch.num_rows == sum(len(ids) for ids, _ in expected)
        exact = table.search("v", asked[0], 7, filter=filter, use_index=False)
        check(exact, expected[0])


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_are_probed_until_enough_selected_rows_are_found(uri: str, kind: str) -> None:
    index(uri, kind, partitions=40)
    table = pennon.open(uri)
    for filter, count in (("id % 97 = 4", 16), ("part = 3", 150)):
        found = table.search("v", queries(1)[0], 200, filter=filter, columns=["id", "part"])
        assert found.num_rows == count
        assert sorted(found["id"].to_pylist()) == sorted(brute_force(uri, queries(1)[0], 200, filter=filter)[0])


def test_the_scalar_index_is_used(uri: str) -> None:
    index(uri, "IVF_PQ")
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    plan = pennon.open(uri).explain_search("v", queries(1)[0], filter="id < 700", analyze=True)
    assert plan.filter is not None
    assert [use.index for use in plan.filter.indices] == ["id_idx"]
    assert plan.filter.rows_selected == 700
    assert plan.filter.scanned_fragments == 0
    assert plan.filter.few == (choice.FEW_SELECTED > 0)
    assert (plan.rows_measured == 700) == plan.filter.few


def test_filters_that_make_no_sense(uri: str) -> None:
    index(uri, "IVF_FLAT")
    for filter in ("nope = 3", "part = = 3", "id + 'x' > 3", "part"):
        with pytest.raises(InvalidFilter):
            pennon.open(uri).search("v", queries(1)[0], filter=filter)
