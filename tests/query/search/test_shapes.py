"""Bounds of the distance, offsets, groups, and all rows within a distance: as brute force and pylance find them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

import pennon
from pennon.errors import ColumnNotFound, InvalidArgument, UnsupportedColumn
from pennon.query.search import shapes
from tests.support.neighbors import METRICS, brute_force, check, index, queries, rows, write

EXACT: dict[str, Any] = {"nprobes": 1000, "ef": 20_000}
ASKED = queries(3)
EVERY = 10_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Covered rows, appended rows, and deleted ones of both."""
    path = write(tmp_path_factory.mktemp("shapes") / "t.lance", rows(1200), fragments=3)
    index(path, "IVF_FLAT", partitions=8)
    lance.dataset(path).create_scalar_index("part", "BTREE")
    lance.write_dataset(rows(200, 1200, seed=2), path, mode="append")
    lance.dataset(path).delete("id % 6 = 1")
    return path


def within(
    uri: str, query: np.ndarray, lower: float, upper: float, metric: str = "l2", filter: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    ids, distances = brute_force(uri, query, EVERY, metric, filter)
    kept = (distances >= lower) & (distances < upper)
    return ids[kept], distances[kept]


def first(some: tuple[np.ndarray, np.ndarray], k: int | None) -> tuple[np.ndarray, np.ndarray]:
    return some[0][:k], some[1][:k]


def middle(uri: str, query: np.ndarray, low: int, high: int, metric: str = "l2") -> tuple[float, float]:
    """Bounds between distances, so that rounding does not decide."""
    _, distances = brute_force(uri, query, EVERY, metric)
    lower, upper = (float((distances[at] + distances[at + 1]) / 2) for at in (low, high))
    return lower, upper


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("filter", [None, "part < 4"])
def test_rows_within_bounds(uri: str, metric: str, filter: str | None) -> None:
    table = pennon.open(uri)
    options: dict[str, Any] = {"metric": metric, "filter": filter, "columns": ["id"]}
    for query in ASKED:
        lower, upper = middle(uri, query, 40, 300, metric)
        ids, distances = within(uri, query, lower, upper, metric, filter)
        near = table.search("v", query, 12, distance_range=(lower, upper), **options, **EXACT)
        check(near, (ids[:12], distances[:12]))
        every = table.search("v", query, None, distance_range=(lower, upper), **options)
        check(every, (ids, distances))
        below = within(uri, query, -np.inf, upper, metric, filter)
        check(table.search("v", query, 9, distance_range=(None, upper), **options, **EXACT), first(below, 9))
        above = within(uri, query, lower, np.inf, metric, filter)
        check(table.search("v", query, 9, distance_range=(lower, None), **options, **EXACT), first(above, 9))


def test_the_bounds_are_those_of_pylance(uri: str) -> None:
    """The lower one belongs to the range, the upper one does not."""
    table, dataset = pennon.open(uri), lance.dataset(uri)
    near = table.search("v", ASKED[0], 5, columns=["id"], use_index=False)["_distance"].to_pylist()
    for lower, upper in ((near[1], near[3]), (near[1], None), (None, near[3]), (near[2], near[2])):
        nearest = {"column": "v", "q": ASKED[0], "k": 5, "use_index": False, "distance_range": (lower, upper)}
        expected = dataset.scanner(columns=["id", "_distance"], nearest=nearest).to_table()
        found = table.search("v", ASKED[0], 5, distance_range=(lower, upper), columns=["id"], use_index=False)
        assert found["id"].to_pylist() == expected["id"].to_pylist()


def test_batches_are_bounded_query_by_query(uri: str) -> None:
    table = pennon.open(uri)
    bounds = middle(uri, ASKED[0], 40, 300)
    for k in (7, None):
        options: dict[str, Any] = {} if k is None else EXACT
        batch = table.search_batch("v", ASKED, k, distance_range=bounds, columns=["id"], **options)
        for number, query in enumerate(ASKED):
            own = batch.filter(np.equal(batch["query_index"].to_numpy(), number))
            check(own, first(within(uri, query, *bounds), k))


def test_an_offset_leaves_out_the_nearest(uri: str) -> None:
    table = pennon.open(uri)
    for offset in (0, 1, 30, 2000):
        ids, distances = brute_force(uri, ASKED[0], offset + 8)
        found = table.search("v", ASKED[0], 8, offset=offset, columns=["id"], **EXACT)
        check(found, (ids[offset:], distances[offset:]))


def test_k_beyond_a_partition_and_beyond_the_table(uri: str) -> None:
    table = pennon.open(uri)
    for k in (400, EVERY):
        check(table.search("v", ASKED[0], k, columns=["id"], minimum_nprobes=8), brute_force(uri, ASKED[0], k))


@pytest.mark.parametrize("growth", [64, 1], ids=["by the index", "measured"])
@pytest.mark.parametrize("options", [{}, {"filter": "id % 5 = 2"}, {"offset": 2}, {"use_index": False}], ids=str)
def test_the_nearest_row_of_each_value(
    uri: str, options: dict[str, Any], growth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "MOST_GROWTH", growth)
    table, offset = pennon.open(uri), options.get("offset", 0)
    parts = dict(zip(*(table.scan(None, ["id", "word"])[name].to_pylist() for name in ("id", "word")), strict=True))
    batch = table.search_batch("v", ASKED, 3, distinct_by="word", columns=["id"], **EXACT, **options)
    for number, query in enumerate(ASKED):
        ids, distances = brute_force(uri, query, EVERY, filter=options.get("filter"))
        nearest = list({parts[row]: at for at, row in reversed(list(enumerate(ids.tolist())))}.values())
        chosen = np.sort(nearest)[offset : offset + 3]
        found = table.search("v", query, 3, distinct_by="word", columns=["id"], **EXACT, **options)
        check(found, (ids[chosen], distances[chosen]))
        check(batch.filter(np.equal(batch["query_index"].to_numpy(), number)), (ids[chosen], distances[chosen]))


def test_groups_within_bounds_are_fewer_than_values(uri: str) -> None:
    table = pennon.open(uri)
    bounds = middle(uri, ASKED[0], 3, 9)
    ids, _ = within(uri, ASKED[0], *bounds)
    words = {f"w{number % 7}" for number in ids.tolist()}
    for k in (50, None):
        found = table.search("v", ASKED[0], k, distinct_by="word", distance_range=bounds, columns=["word"])
        assert sorted(found["word"].to_pylist()) == sorted(words)


def test_null_is_one_value(tmp_path: Path) -> None:
    table = rows(60)
    words = [None if number % 3 else word for number, word in enumerate(table["word"].to_pylist())]
    uri = write(tmp_path / "t.lance", table.set_column(2, "word", [words]))
    found = pennon.open(uri).search("v", ASKED[0], 50, distinct_by="word", columns=["word"])
    assert len(found["word"].to_pylist()) == 8
    assert found["word"].to_pylist().count(None) == 1


def test_the_plan_describes_the_shape(uri: str) -> None:
    table = pennon.open(uri)
    plan = str(table.explain_search("v", ASKED[0], 4, distance_range=(1, 2.5), offset=3, distinct_by="word"))
    assert "4 rows after the first 3, one for each word, at distances from 1 on and below 2.5 by l2" in plan
    ran = table.explain_search("v", ASKED[0], None, distance_range=(None, 2), analyze=True)
    assert "all rows at distances below 2 by l2" in str(ran)
    assert "partitions whose radius does not rule out rows within the distance" in str(ran)
    assert ran.rows_measured == 166, "those that no index covers, and none that it rules out"


@pytest.mark.parametrize(
    ("options", "error", "states"),
    [
        ({"k": None}, InvalidArgument, "without k has no end"),
        ({"k": None, "distance_range": (1, None)}, InvalidArgument, "without k has no end"),
        ({"k": None, "distance_range": (0, 1), "nprobes": 3}, InvalidArgument, "nprobes has no meaning"),
        ({"distance_range": (2, 1)}, InvalidArgument, "the first not above the second"),
        ({"distance_range": (1,)}, InvalidArgument, "a pair of numbers"),
        ({"distance_range": "12"}, InvalidArgument, "a pair of numbers"),
        ({"distance_range": (float("nan"), 1)}, InvalidArgument, "a pair of numbers"),
        ({"offset": -1}, InvalidArgument, "offset must be"),
        ({"distinct_by": "nothing"}, ColumnNotFound, "nothing"),
        ({"distinct_by": "v"}, UnsupportedColumn, "form no groups"),
        ({"distinct_by": 7}, InvalidArgument, "distinct_by must be text"),
    ],
)
def test_shapes_that_make_no_sense(uri: str, options: dict[str, Any], error: type[Exception], states: str) -> None:
    with pytest.raises(error, match=states):
        pennon.open(uri).search("v", ASKED[0], **options)
