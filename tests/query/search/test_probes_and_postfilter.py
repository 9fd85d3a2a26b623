"""`prefilter=False`, `minimum_nprobes` and `maximum_nprobes`, as pylance has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow.compute as pc
import pytest

import pennon
from pennon.errors import InvalidArgument, InvalidFilter
from tests.support.cli import as_json
from tests.support.neighbors import brute_force, index, queries, rows, write

ALL = 1000
PARTITIONS = 8
ASKED = queries(4)
FILTERS = ["part = 3", "id % 2 = 0", "id > 100000", "word = 'w1' and part < 5", "id >= 0"]

WAYS: list[dict[str, Any]] = [{"nprobes": ALL}, {"nprobes": ALL, "refine_factor": 3}, {"use_index": False}]
BOUNDS: list[dict[str, Any]] = [{"maximum_nprobes": 3}, {"minimum_nprobes": 2, "maximum_nprobes": 6}, {"nprobes": 4}]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Covered rows, deleted ones, and a fragment that the index does not cover."""
    path = write(tmp_path_factory.mktemp("postfilter") / "t.lance", rows(1500))
    index(path, "IVF_FLAT", partitions=PARTITIONS)
    lance.write_dataset(rows(200, 1500, seed=2), path, mode="append")
    lance.dataset(path).delete("id % 6 = 1")
    return path


def of_pylance(uri: str, query: np.ndarray, k: int, **options: Any) -> list[int]:
    scanned = {name: options.pop(name) for name in ("filter", "prefilter") if name in options}
    nearest = {"column": "v", "q": query, "k": k, **options}
    return lance.dataset(uri).to_table(columns=["id", "_distance"], nearest=nearest, **scanned)["id"].to_pylist()


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize(
    "options", [{"nprobes": ALL}, {"nprobes": ALL, "refine_factor": 3}, {"use_index": False}], ids=str
)
def test_the_filter_comes_after_the_search(uri: str, filter: str, options: dict[str, Any]) -> None:
    table = pennon.open(uri)
    for query in ASKED:
        found = table.search("v", query, 20, filter=filter, prefilter=False, **options)
        assert found["id"].to_pylist() == of_pylance(uri, query, 20, filter=filter, prefilter=False, **options)
        nearest = brute_force(uri, query, 20)[0]
        selected = set(lance.dataset(uri).to_table(columns=["id"], filter=filter)["id"].to_pylist())
        assert found["id"].to_pylist() == [number for number in nearest.tolist() if number in selected]


def test_the_filter_comes_before_the_search_by_default(uri: str) -> None:
    table = pennon.open(uri)
    before = table.search("v", ASKED[0], 20, filter="part = 3", nprobes=ALL)
    assert before.num_rows == 20
    assert before == table.search("v", ASKED[0], 20, filter="part = 3", nprobes=ALL, prefilter=True)
    assert before["id"].to_pylist() == of_pylance(uri, ASKED[0], 20, filter="part = 3", prefilter=True, nprobes=ALL)
    assert table.search("v", ASKED[0], 20, filter="part = 3", nprobes=ALL, prefilter=False).num_rows < 20


def test_many_queries_are_filtered_one_by_one(uri: str) -> None:
    table = pennon.open(uri)
    options: dict[str, Any] = {"filter": "part < 4", "prefilter": False, "nprobes": ALL, "columns": ["id"]}
    found = table.search_batch("v", ASKED, 10, **options)
    for number, query in enumerate(ASKED):
        own = found.filter(pc.equal(found["query_index"], number))
        assert own.drop_columns(["query_index"]) == table.search("v", query, 10, **options)


def test_a_wrong_filter_is_refused_after_a_search_too(uri: str) -> None:
    with pytest.raises(InvalidFilter):
        pennon.open(uri).search("v", ASKED[0], filter="nothing = ", prefilter=False)
    with pytest.raises(InvalidArgument, match="prefilter must be True or False"):
        pennon.open(uri).search("v", ASKED[0], prefilter="no")  # pyright: ignore[reportArgumentType]


@pytest.fixture
def covered(tmp_path: Path) -> str:
    path = write(tmp_path / "t.lance", rows(1500))
    index(path, "IVF_FLAT", partitions=40)
    return path


def probed(uri: str, k: int, **options: Any) -> int:
    (segment,) = pennon.open(uri).explain_search("v", ASKED[0], k, analyze=True, **options).segments
    return segment.probed


def test_partitions_beyond_the_minimum_are_probed_while_answers_are_missing(covered: str) -> None:
    assert probed(covered, 5, minimum_nprobes=3) == 3
    assert probed(covered, 5) == 20
    assert probed(covered, 5, maximum_nprobes=4) == 4
    assert probed(covered, 1500, minimum_nprobes=3) == 40
    assert probed(covered, 1500, minimum_nprobes=3, maximum_nprobes=11) == 11
    assert probed(covered, 1500, nprobes=7) == 7
    assert probed(covered, 1500, nprobes=7, maximum_nprobes=9) == 9
    assert probed(covered, 5, nprobes=7, minimum_nprobes=2) in {2, 4, 7}


@pytest.mark.parametrize(
    "options", [{"maximum_nprobes": 3}, {"minimum_nprobes": 2, "maximum_nprobes": 6}, {"nprobes": 4}], ids=str
)
def test_pylance_finds_the_same_rows_within_the_same_bounds(covered: str, options: dict[str, Any]) -> None:
    """More rows are asked for than these partitions hold, so that both look at as many as they may."""
    for query in ASKED:
        found = pennon.open(covered).search("v", query, 1500, columns=["id"], **options)
        assert found["id"].to_pylist() == of_pylance(covered, query, 1500, **options)
        assert found.num_rows < 1500


@pytest.mark.parametrize(
    "options",
    [
        {"minimum_nprobes": 5, "maximum_nprobes": 4},
        {"nprobes": 5, "maximum_nprobes": 4},
        {"minimum_nprobes": 5, "nprobes": 4},
        {"minimum_nprobes": 0},
        {"maximum_nprobes": "3"},
        {"minimum_nprobes": True},
    ],
    ids=str,
)
def test_bounds_that_exclude_each_other(covered: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"partitions|whole number"):
        pennon.open(covered).search("v", ASKED[0], **options)


def test_the_explanation_names_both(covered: str) -> None:
    table = pennon.open(covered)
    options: dict[str, Any] = {"minimum_nprobes": 2, "maximum_nprobes": 6, "filter": "part = 3", "prefilter": False}
    plan = table.explain_search("v", ASKED[0], 5, **options)
    assert (plan.minimum_nprobes, plan.maximum_nprobes, plan.nprobes) == (2, 6, None)
    assert "2 partitions of each segment, up to 6 while there are fewer than 5 results" in str(plan)
    assert "checked on the rows found" in str(plan)
    ran = table.explain_search("v", ASKED[0], 5, analyze=True, **options)
    assert ran.filter is not None
    assert (ran.filter.after, ran.filter.rows_selected) == (True, None)
    assert ran.rows_returned == table.search("v", ASKED[0], 5, **options).num_rows


def test_the_command_line_has_them(covered: str) -> None:
    arguments = [
        "search",
        covered,
        "v",
        "--like",
        "id = 3",
        "--filter",
        "part = 3",
        "--no-prefilter",
        "--columns",
        "id",
    ]
    rows = as_json(*arguments, "--minimum-nprobes", "40", "--maximum-nprobes", "40", "--k", "20")["rows"]
    query = lance.dataset(covered).to_table(filter="id = 3")["v"][0].values.to_numpy()
    expected = of_pylance(covered, query, 20, filter="part = 3", prefilter=False, nprobes=40)
    assert [row["id"] for row in rows] == expected
