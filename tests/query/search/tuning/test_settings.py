"""Recall with its interval, settings to choose from, and what is stored of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pennon.query.search.request import SearchRequest
from pennon.query.search.tuning.filters import shape_of
from pennon.query.search.tuning.record import FilterClass, IndexState, Tuning
from pennon.query.search.tuning.settings import EXACT, Measured, Recall, Setting, cheapest, frontier


@pytest.mark.parametrize("mean", [0.7, 0.95, 0.99])
@pytest.mark.parametrize("queries", [60, 400])
def test_the_interval_holds_the_true_recall_nine_times_in_ten(mean: float, queries: int) -> None:
    """Queries differ in difficulty, so that answers of one query are not independent."""
    rng = np.random.default_rng(3)
    held = below = 0
    for _ in range(600):
        difficulty = rng.beta(mean * 8, (1 - mean) * 8, queries)
        recall = Recall.of((rng.binomial(10, difficulty) / 10).astype(np.float32))
        held += recall.low <= mean <= recall.high
        below += recall.low > mean
    assert held / 600 > 0.85
    assert below / 600 < 0.08, "the lower end is above the true recall too often"


def test_a_sample_that_found_all_is_no_proof() -> None:
    assert Recall.of(np.ones(100, np.float32)).low < 0.99 < Recall.of(np.ones(1000, np.float32)).low


def point(index: str | None, recall: float, milliseconds: float, least_k: int = 1, nprobes: int = 5) -> Measured:
    return Measured(Setting(index, nprobes), Recall(recall, recall - 0.01, recall + 0.01, 100), least_k, milliseconds)


def test_the_cheapest_setting_reaches_the_recall_with_confidence_and_for_this_k() -> None:
    points = [point("a", 0.955, 1.0), point("b", 0.97, 2.0, least_k=5), point("c", 0.98, 3.0)]
    assert cheapest(points, 0.95, 10) == points[1]
    assert cheapest(points, 0.95, 3) == points[2]
    assert cheapest(points, 0.94, 3) == points[0]
    assert cheapest(points, 0.99, 10) is None


def test_the_frontier_leaves_out_what_is_beaten() -> None:
    points = [point("a", 0.9, 2.0), point("b", 0.8, 3.0), point("c", 0.95, 4.0), point("d", 0.7, 1.0)]
    assert [each.setting.index for each in frontier(points)] == ["d", "a", "c"]


def test_a_setting_for_fewer_neighbors_compares_as_many_candidates() -> None:
    request = Setting("x", 7, refine_factor=3, ef=30).applied(SearchRequest("v", 4), 10)
    assert (request.index, request.minimum_nprobes, request.refine_factor, request.ef) == ("x", 7, 8, 32)
    assert request.wanted >= 30
    assert Setting(None).applied(SearchRequest("v", 4, index="x"), 10).use_index is False


def test_a_measurement_is_what_it_was_after_it_was_stored() -> None:
    state = IndexState("x", "IVF_SQ", 8, 24, 1000, ("u1", "u2"), "abc", 1.5)
    points = (
        Measured(Setting(None), EXACT, 1, 9.0),
        Measured(Setting("x", 4, 2, 30), Recall(0.9, 0.8, 0.95, 50), 5, 1.0),
    )
    tuning = Tuning("v", "l2", 10, 0.9, FilterClass("a = ?", 0.25), points, (state,), 1000, 3, 12.5)
    assert Tuning.from_json(tuning.to_json()) == tuning
    assert tuning.is_for("v", "l2", 5, FilterClass("a = ?", 0.4))
    assert not tuning.is_for("v", "l2", 5, FilterClass("a = ?", 0.04))
    assert not tuning.is_for("v", "l2", 5, FilterClass("b = ?", 0.25))
    assert not tuning.is_for("v", "l2", 5, None)
    assert not tuning.is_for("v", "l2", 11, FilterClass("a = ?", 0.25))


@pytest.mark.parametrize("change", [{"format": 2}, {"points": [{}]}, {"k": None}, {"filter": 3}])
def test_what_is_no_measurement_is_refused(change: dict[str, object]) -> None:
    tuning = Tuning("v", "l2", 10, 0.9, None, (), (), 1000, 3, 12.5)
    broken = json.dumps({**json.loads(tuning.to_json()), **change})
    with pytest.raises((ValueError, KeyError, TypeError)):
        Tuning.from_json(broken)


def test_filters_that_differ_in_literals_have_one_shape() -> None:
    assert shape_of("lang = 'en' AND n IN (1, 2, 3)") == shape_of("LANG = 'de' and n in (4)")
    assert shape_of("n > -3") == shape_of("n > 4")
    assert shape_of("lang = 'en'") != shape_of("lang != 'en'")
    assert shape_of("`a b` = 1") != shape_of("`a c` = 1")
