"""Geometries in filters: which of them have a box, and what becomes of the others."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from pennon.index.conditions import MeetsBox
from pennon.query.filter.geometry import RELATIONS, box_of_text
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import And, Opaque, Or

POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
COLUMNS = {"p": POINT, "p.x": pa.float64(), "k": pa.int64()}
CONSTANT = "st_geomfromtext('LINESTRING(0 1, 2 3)')"
BOX = MeetsBox("p", POINT, 0.0, 1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("text", "box"),
    {
        "POINT(1 2)": (1, 2, 1, 2),
        " point ( -1.5 +2e1 ) ": (-1.5, 20, -1.5, 20),
        "POINT Z (1 2 3)": (1, 2, 1, 2),
        "POINTZ(1 2 9)": (1, 2, 1, 2),
        "LINESTRING ZM (0 0 9 9, .5 4. 8 8)": (0, 0, 0.5, 4),
        "POLYGON((0 0,4 0,4 5,0 0),(1 1,2 2,3 1,1 1))": (0, 0, 4, 5),
        "MULTIPOINT(1 1, 2 3)": (1, 1, 2, 3),
        "MULTIPOINT((1 1), (2 3))": (1, 1, 2, 3),
        "MULTILINESTRING((0 0,1 1),(5 5,6 7))": (0, 0, 6, 7),
        "MULTIPOLYGON(((0 0,1 0,1 1,0 0)),((5 5,6 6,7 5,5 5)))": (0, 0, 7, 6),
    }.items(),
)
def test_boxes_of_well_known_text(text: str, box: tuple[float, ...]) -> None:
    assert box_of_text(text) == box


@pytest.mark.parametrize(
    "text",
    [
        "",
        "POINT EMPTY",
        "MULTIPOINT((1 1), EMPTY)",
        "POINT(1 2 3)",
        "POINT Z(1 2)",
        "POINT(1 1, 2 2)",
        "POINT((1 1))",
        "LINESTRING((0 0, 1 1))",
        "LINESTRING(0 0,)",
        "POLYGON(0 0, 1 1, 1 0)",
        "POINT(nan 1)",
        "POINT(1e999 1)",
        "POINT(1_0 1)",
        "POINT(1 1) POINT(2 2)",
        "POINT(1 1",
        "SRID=4326;POINT(1 1)",
        "GEOMETRYCOLLECTION(POINT(1 1))",
        "CIRCLE(1 1)",
    ],
)
def test_texts_that_only_a_scan_reads(text: str) -> None:
    assert box_of_text(text) is None
    filter = f"st_intersects(p, st_geomfromtext('{text}'))"
    assert parse_filter(filter, COLUMNS) == Opaque(filter)


@pytest.mark.parametrize(
    "text",
    ["POINT(" + "1" * 50_000 + "x)", "POINT" + "(" * 50_000, "A" * 50_000 + " " * 50_000, "POINT(" + " " * 50_000],
)
def test_no_text_takes_long(text: str) -> None:
    start = time.thread_time()
    assert box_of_text(text) is None
    assert time.thread_time() - start < 2


@pytest.mark.parametrize("relation", RELATIONS)
def test_relations_in_either_order(relation: str) -> None:
    assert parse_filter(f"{relation}(p, {CONSTANT})", COLUMNS) == BOX
    assert parse_filter(f"{relation.upper()}({CONSTANT.upper()}, p)", COLUMNS) == BOX
    assert not BOX.exact


def test_parts_of_larger_filters() -> None:
    both = parse_filter(f"st_within(p, {CONSTANT}) and st_distance(p, {CONSTANT}) < 5", COLUMNS)
    assert both == And((BOX, Opaque(f"st_distance(p, {CONSTANT}) < 5")))
    either = parse_filter(f"p IS NULL OR st_within(p, {CONSTANT})", COLUMNS)
    assert isinstance(either, Or)
    assert BOX in either.children


@pytest.mark.parametrize(
    "filter",
    [
        f"st_disjoint(p, {CONSTANT})",
        "st_intersects(p, p)",
        "st_intersects(p, st_point(1.0, 2.0))",
        f"st_intersects(p, {CONSTANT}, 3)",
        f"st_intersects(st_buffer(p, 1), {CONSTANT})",
        "st_intersects(p, st_geomfromtext('POINT(1 1)', 4326))",
        f"st_intersects({CONSTANT}, {CONSTANT})",
        f"st_intersects(missing, {CONSTANT})",
        f"st_geomfromtext(p, {CONSTANT})",
    ],
)
def test_what_lance_alone_evaluates(filter: str) -> None:
    assert parse_filter(filter, COLUMNS) == Opaque(filter)


def test_negations_are_scanned() -> None:
    assert isinstance(parse_filter(f"NOT st_intersects(p, {CONSTANT})", COLUMNS), Opaque)
