"""The boxes around the geometries of a column, computed on whole arrays.

A GeoArrow column has its coordinates in plain Arrow arrays: a point is a struct of `x` and `y` (and `z`, `m`), a line
string a list of those, a polygon a list of rings, and so on; a box is a struct of its four bounds. So the box of a row
is the least and the greatest of a range of numbers, for every kind of geometry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import Addresses

# A row for each box: xmin, ymin, xmax, ymax.
Boxes = npt.NDArray[np.float64]

BOUNDS = ("xmin", "ymin", "xmax", "ymax")
# Lists in lists of positions: those of a multipolygon.
MOST_NESTED = 3


@dataclass(frozen=True, eq=False)
class Leaves:
    """Boxes and the ids of their rows."""

    boxes: Boxes
    ids: Addresses

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: npt.NDArray[Any] | slice) -> Leaves:
        return Leaves(self.boxes[rows], self.ids[rows])

    @classmethod
    def none(cls) -> Leaves:
        return cls(np.empty((0, 4)), np.empty(0, dtype=np.uint64))

    @classmethod
    def joined(cls, parts: list[Leaves]) -> Leaves:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.none()
        return cls(np.concatenate([part.boxes for part in parts]), np.concatenate([part.ids for part in parts]))


def has_boxes(type_: pa.DataType) -> bool:
    """Whether a type is that of the coordinates of a GeoArrow column."""
    for _ in range(MOST_NESTED):
        if pa.types.is_list(type_) or pa.types.is_large_list(type_):
            type_ = type_.value_type
    return _is_struct_of(type_, ("x", "y")) or _is_struct_of(type_, BOUNDS)


def boxes_of(values: pa.Array) -> tuple[Boxes, npt.NDArray[np.bool_]]:
    """A box for each value, and whether the value has one. NULL has none, and neither has an empty geometry: one
    without positions, or with NaN as all its x or y. Other NaNs are ignored, as pylance does.

    The bits under a NULL coordinate count, since Lance reads them as a number.
    """
    present = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type):
        names = BOUNDS if _is_struct_of(values.type, BOUNDS) else ("x", "y", "x", "y")
        boxes = np.stack([_numbers(values, name) for name in names], axis=1)
    else:
        boxes = _boxes_of_lists(values)
    return boxes, present & ~np.isnan(boxes).any(axis=1)


def _boxes_of_lists(values: pa.Array) -> Boxes:
    ends = np.arange(len(values) + 1)
    while not pa.types.is_struct(values.type):
        ends, values = values.offsets.to_numpy()[ends].astype(np.int64), values.values
    names = BOUNDS if _is_struct_of(values.type, BOUNDS) else ("x", "y", "x", "y")
    boxes = np.full((len(ends) - 1, 4), np.nan)
    filled = np.flatnonzero(ends[1:] > ends[:-1])
    if len(filled):
        # Both ends of each range: what is between two ranges, under a NULL, is left out.
        ranges = np.stack([ends[filled], ends[filled + 1]], axis=1).ravel()
        for at, (name, extreme) in enumerate(zip(names, (np.fmin, np.fmin, np.fmax, np.fmax), strict=True)):
            numbers = np.append(_numbers(values, name), np.nan)  # the last range may end here
            boxes[filled, at] = extreme.reduceat(numbers, ranges)[::2]
    return boxes


def _numbers(values: pa.StructArray, name: str) -> npt.NDArray[np.float64]:
    """A field of a struct, with the bits under its NULLs."""
    array = values.field(name)
    data = array.buffers()[1]
    if data is None:
        return np.empty(0)
    return np.frombuffer(data, dtype=np.float64)[array.offset : array.offset + len(array)]


def _is_struct_of(type_: pa.DataType, names: tuple[str, ...]) -> bool:
    if not pa.types.is_struct(type_):
        return False
    found = {type_.field(at).name: type_.field(at).type for at in range(type_.num_fields)}
    return all(found.get(name) == pa.float64() for name in names)
