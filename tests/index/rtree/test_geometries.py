"""Boxes of arrays of geometries, compared with those of every row by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.index.rtree.curve import Curve, CurveRanges
from pennon.index.rtree.geometries import boxes_of, has_boxes
from pennon.index.rtree.levels import levels_of
from tests.support.geometries import BOX, GEOMETRIES, POSITION, geometries, list_of

NAN = math.nan


def positions(value: Any) -> Iterator[tuple[float, float]]:
    if isinstance(value, list):
        for part in value:
            yield from positions(part)
    elif "x" in value:
        yield value["x"], value["y"]
    else:
        yield from ((value["xmin"], value["ymin"]), (value["xmax"], value["ymax"]))


def expected(value: Any) -> tuple[float, ...] | None:
    found = list(positions(value)) if value is not None else []
    xs, ys = (
        ([number for number in axis if number == number] for axis in zip(*found, strict=True)) if found else ([], [])
    )
    return (min(xs), min(ys), max(xs), max(ys)) if xs and ys else None


def check(values: pa.Array) -> None:
    boxes, found = boxes_of(values)
    computed = [tuple(box) if has else None for box, has in zip(boxes.tolist(), found.tolist(), strict=True)]
    assert computed == [expected(value) for value in values.to_pylist()]


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_every_kind(kind: str) -> None:
    values = geometries(300, 3, kind)
    assert has_boxes(values.type)
    for some in (values, values[7:200], values[150:][3:40], values[:0]):
        check(some)
    check(pa.concat_arrays([values[200:], values[:100]]))


def test_numbers_that_are_none() -> None:
    check(pa.array([{"x": NAN, "y": NAN}, {"x": 1.0, "y": NAN}, {"x": math.inf, "y": 1.0}, None], POSITION))
    lines = [[{"x": NAN, "y": 1.0}, {"x": 2.0, "y": 3.0}], [{"x": NAN, "y": 1.0}], [], None]
    check(pa.array(lines, list_of(POSITION)))


def test_lists_under_a_null_do_not_count() -> None:
    points = pa.array([{"x": float(n), "y": 0.0} for n in range(6)], POSITION)
    lines = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6]), points, mask=pa.array([False, True, False]))
    boxes, found = boxes_of(lines)
    assert found.tolist() == [True, False, True]
    assert boxes[[0, 2]].tolist() == [[0, 0, 1, 0], [4, 0, 5, 0]]


def test_more_dimensions_and_large_lists() -> None:
    solid = pa.struct([*POSITION, pa.field("z", pa.float64())])
    check(pa.array([{"x": 1.0, "y": 2.0, "z": 9.0}, None], solid))
    check(pa.array([[{"x": 1.0, "y": 2.0}], [], None], pa.large_list(POSITION)))


@pytest.mark.parametrize(
    "type_",
    [pa.float64(), pa.binary(), pa.list_(pa.float64(), 2), pa.struct([("x", pa.float32()), ("y", pa.float32())])],
    ids=str,
)
def test_other_types(type_: pa.DataType) -> None:
    assert not has_boxes(type_)
    assert has_boxes(BOX)
    assert not has_boxes(list_of(list_of(list_of(list_of(POSITION)))))


@pytest.mark.parametrize(
    ("items", "rows"), [(0, []), (1, [1]), (4, [4]), (5, [5, 2]), (17, [17, 5, 2]), (65, [65, 17, 5, 2])]
)
def test_levels(items: int, rows: list[int]) -> None:
    levels = levels_of(items, 4)
    assert [level.rows for level in levels] == rows
    assert [level.first_row for level in levels] == [sum(rows[:at]) for at in range(len(rows))]
    pages = [level.pages for level in levels]
    assert [level.first_page for level in levels] == [sum(pages[:at]) for at in range(len(rows))]


def test_neighbors_on_the_curve_are_neighbors_on_the_plane() -> None:
    x, y = np.meshgrid(np.arange(32.0), np.arange(32.0))
    boxes = np.stack([x.ravel(), y.ravel(), x.ravel(), y.ravel()], axis=1)
    keys = Curve.of(boxes).keys(boxes)
    assert len(np.unique(keys)) == len(boxes)
    steps = np.abs(np.diff(boxes[np.argsort(keys)], axis=0)).sum(axis=1) / 2
    assert steps.mean() < 1.1  # all are 1 where quantiles are cells


def test_ranges_have_about_equal_rows() -> None:
    rng = np.random.default_rng(2)
    centers = np.exp(rng.standard_normal((5000, 2)) * 40)
    centers[:3] = math.inf
    boxes = np.concatenate([centers, centers], axis=1)
    ranges = CurveRanges.of(boxes, 8)
    edges = ranges.edges(np.sort(ranges.curve.keys(boxes)))
    assert ranges.count == len(edges) == 8
    assert all(400 < stop - start < 850 for _, start, stop in edges)


def test_one_place_is_one_range() -> None:
    boxes = np.ones((100, 4))
    ranges = CurveRanges.of(boxes, 8)
    assert sum(stop - start for _, start, stop in ranges.edges(np.sort(ranges.curve.keys(boxes)))) == 100
    assert CurveRanges.of(np.empty((0, 4)), 3).count == 1
