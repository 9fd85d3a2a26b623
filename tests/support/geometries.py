"""Tables with a column of geometries, of every kind that GeoArrow stores as coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

POSITION = pa.struct([pa.field("x", pa.float64(), nullable=False), pa.field("y", pa.float64(), nullable=False)])
BOX = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in ("xmin", "ymin", "xmax", "ymax")])


def list_of(type_: pa.DataType, name: str = "vertices") -> pa.DataType:
    return pa.list_(pa.field(name, type_, nullable=False))


RINGS = list_of(list_of(POSITION), "rings")

Rng = np.random.Generator


def _position(rng: Rng, spread: float = 90.0) -> dict[str, float]:
    x, y = rng.uniform(-spread, spread, 2).tolist()
    return {"x": x, "y": y}


def _near(rng: Rng, count: int) -> list[dict[str, float]]:
    start = _position(rng)
    steps = rng.uniform(-2, 2, (count, 2)).tolist()
    return [{"x": start["x"] + dx, "y": start["y"] + dy} for dx, dy in steps]


def _ring(rng: Rng) -> list[dict[str, float]]:
    """A triangle, closed."""
    corners = _near(rng, 3)
    return [*corners, corners[0]]


def _box(rng: Rng) -> dict[str, float]:
    a, b = _near(rng, 2)
    xs, ys = sorted((a["x"], b["x"])), sorted((a["y"], b["y"]))
    return {"xmin": xs[0], "ymin": ys[0], "xmax": xs[1], "ymax": ys[1]}


def _some(rng: Rng, make: Callable[[Rng], Any]) -> list[Any]:
    """Up to three parts; none are an empty geometry."""
    return [make(rng) for _ in range(int(rng.integers(0, 4)))]


# Extension type -> storage, and a geometry.
GEOMETRIES: dict[str, tuple[pa.DataType, Callable[[Rng], Any]]] = {
    "geoarrow.point": (POSITION, _position),
    "geoarrow.linestring": (list_of(POSITION), lambda rng: _near(rng, 3)),
    "geoarrow.polygon": (RINGS, lambda rng: [_ring(rng)] if rng.random() < 0.9 else []),
    "geoarrow.multipoint": (list_of(POSITION, "points"), lambda rng: _some(rng, _position)),
    "geoarrow.multilinestring": (
        list_of(list_of(POSITION), "linestrings"),
        lambda rng: _some(rng, lambda r: _near(r, 2)),
    ),
    "geoarrow.multipolygon": (list_of(RINGS, "polygons"), lambda rng: _some(rng, lambda r: [_ring(r)])),
    "geoarrow.box": (BOX, _box),
}


def geometries(count: int, seed: int, kind: str = "geoarrow.point") -> pa.Array:
    """One in twenty is NULL."""
    rng, (type_, make) = np.random.default_rng(seed), GEOMETRIES[kind]
    return pa.array([None if rng.random() < 0.05 else make(rng) for _ in range(count)], type_)


def geometry_table(start: int, values: pa.Array, kind: str = "geoarrow.point") -> pa.Table:
    """Columns `id` and `p`."""
    field = pa.field("p", values.type, metadata={"ARROW:extension:name": kind})
    ids = pa.array(range(start, start + len(values)), pa.int64())
    return pa.Table.from_arrays([ids, values], schema=pa.schema([pa.field("id", pa.int64()), field]))


def rectangle(xmin: float, ymin: float, xmax: float, ymax: float) -> str:
    """A constant of filters."""
    corners = f"{xmin} {ymin}, {xmax} {ymin}, {xmax} {ymax}, {xmin} {ymax}, {xmin} {ymin}"
    return f"st_geomfromtext('POLYGON(({corners}))')"
