"""The geometries of filters: relations that need a common point, and the box of a constant in Well-Known Text (WKT).

Lance evaluates the relations itself. Here only the box of the constant is needed, and anything unusual is left to the
scan: EMPTY, collections, text after the geometry, numbers that are not finite.
"""

from __future__ import annotations

import math
import re

# TRUE only for geometries with a point in common, so that their boxes have one too. This holds in either order of the
# arguments, and for no geometry that is empty.
RELATIONS = (
    "st_intersects",
    "st_within",
    "st_contains",
    "st_covers",
    "st_coveredby",
    "st_touches",
    "st_crosses",
    "st_overlaps",
    "st_equals",
)
Box = tuple[float, float, float, float]

# The nesting of the lists of positions in a geometry.
_DEPTHS = {
    "POINT": (1,),
    "LINESTRING": (1,),
    "POLYGON": (2,),
    "MULTIPOINT": (1, 2),
    "MULTILINESTRING": (2,),
    "MULTIPOLYGON": (3,),
}
_NUMBERS_OF = {"": 2, "Z": 3, "M": 3, "ZM": 4}
_TYPE = re.compile(r"[ \t\r\n]*+([A-Za-z]++)[ \t\r\n]*+(ZM|Z|M|)[ \t\r\n]*+(?=\()", re.IGNORECASE)
# Possessive: no text takes long.
_TOKEN = re.compile(
    r"[ \t\r\n]*+(?:([(),])|([+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+)(?![^ \t\r\n(),]))"
)
_NUMBER = "n"


def box_of_text(text: str) -> Box | None:
    """The smallest box (xmin, ymin, xmax, ymax) around a geometry in WKT; None if it cannot be read with certainty."""
    text = text.rstrip(" \t\r\n")
    start = _TYPE.match(text)
    if start is None:
        return None
    name, dimensions = start[1].upper(), start[2].upper()
    if name not in _DEPTHS:  # POINTZ is POINT Z
        attached = next((tag for tag in ("ZM", "Z", "M") if name.endswith(tag)), "")
        name, dimensions = (name[: -len(attached)], attached) if attached and not dimensions else ("", "")
    depths, width = _DEPTHS.get(name), _NUMBERS_OF[dimensions]
    shape, numbers = _shape(text, start.end())
    if depths is None or not any(re.fullmatch(_nested(depth, width), shape) for depth in depths):
        return None
    xs, ys = numbers[::width], numbers[1::width]
    if name == "POINT" and len(xs) != 1:
        return None
    box = min(xs), min(ys), max(xs), max(ys)
    return box if all(map(math.isfinite, numbers)) else None


def _shape(text: str, start: int) -> tuple[str, list[float]]:
    """The signs of a text, with a letter for each number, and the numbers; no signs if there is anything else."""
    shape, numbers = list[str](), list[float]()
    while start < len(text):
        token = _TOKEN.match(text, start)
        if token is None:
            return "", []
        if token[2]:
            numbers.append(float(token[2]))
        shape.append(token[1] or _NUMBER)
        start = token.end()
    return "".join(shape), numbers


def _nested(depth: int, width: int) -> str:
    """Lists of positions in parentheses, as a pattern of shapes."""
    inner = f"{_NUMBER}{{{width}}}"
    for _ in range(depth):
        inner = rf"\({inner}(?:,{inner})*+\)"
    return inner
