"""Vectors between Arrow and numpy: a column of fixed-size lists is a matrix with one row per vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import InvalidArgument
from pennon.format.schema import stored_values

Floats = npt.NDArray[np.float32]
Vectors = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.unsignedinteger[Any]]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

# The element types of vector columns: floats, and bytes of bits, which are compared by the hamming metric.
ELEMENT_TYPES = (pa.float16(), pa.float32(), pa.float64(), pa.uint8())

# Elements of a temporary: 1 MiB of float32, which stays in the second-level cache between two passes over it.
CHUNK_ELEMENTS = 1 << 18


VECTOR_TYPES = "fixed-size lists of float16, float32 or float64, lists of such, or fixed-size lists of uint8 for bits"


@dataclass(frozen=True)
class VectorType:
    """What a vector column holds."""

    item: pa.DataType
    dim: int  # items of a vector
    several: bool = False  # whether a row has a list of vectors, of any number

    @classmethod
    def of(cls, type_: pa.DataType) -> VectorType:
        """Raises TypeError for columns of other types."""
        found = cls.find(type_)
        if found is None:
            raise TypeError(f"{type_} is not a type of vectors")
        return found

    @classmethod
    def find(cls, type_: pa.DataType) -> VectorType | None:
        """None for columns of other types."""
        if pa.types.is_fixed_size_list(type_) and type_.value_type in ELEMENT_TYPES:
            return cls(type_.value_type, type_.list_size)
        one = cls.find(type_.value_type) if pa.types.is_list(type_) else None
        # pylance compares lists of vectors of bits, but cannot index them.
        return None if one is None or one.several or one.element == np.uint8 else replace(one, several=True)

    @property
    def element(self) -> np.dtype[Any]:
        return np.dtype(self.item.to_pandas_dtype())

    @property
    def nbytes(self) -> int:
        """Bytes of a vector."""
        return self.dim * self.element.itemsize

    def __str__(self) -> str:
        return f"{'several ' * self.several}{self.item}[{self.dim}]"


def is_vector_type(type_: pa.DataType) -> bool:
    return VectorType.find(type_) is not None


def to_matrix(column: pa.Array) -> tuple[npt.NDArray[Any], Mask]:
    """The rows of a column of fixed-size lists or one-dimensional tensors, and a mask of the complete ones: not NULL
    and without a NULL item."""
    column = stored_values(column)
    width = column.type.list_size
    items = column.values.slice(column.offset * width, len(column) * width)
    whole = np.ones(len(column), dtype=np.bool_)
    if column.null_count:
        whole &= column.is_valid().to_numpy(zero_copy_only=False)
    if items.null_count:
        whole &= items.is_valid().to_numpy(zero_copy_only=False).reshape(-1, width).all(axis=1)
    # NULL items have arbitrary bytes; `whole` excludes their rows.
    element = np.dtype(items.type.to_pandas_dtype())
    data = np.frombuffer(items.buffers()[1] or b"", dtype=element)
    return data[items.offset : items.offset + len(items)].reshape(len(column), width), whole


def to_rows(column: pa.Array) -> tuple[npt.NDArray[Any], Positions]:
    """The complete vectors of a column, of one or several a row, and the position of the row of each."""
    if not pa.types.is_list(column.type):
        matrix, whole = to_matrix(column)
        rows = np.flatnonzero(whole)
        return (matrix if len(rows) == len(matrix) else matrix[rows]), rows
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    # Without the items of NULL lists.
    matrix, whole = to_matrix(column.flatten())
    rows = np.repeat(np.arange(len(column)), lengths)
    return (matrix, rows) if whole.all() else (matrix[whole], rows[whole])


def to_lists(matrix: npt.NDArray[Any]) -> pa.Array:
    """A matrix as a fixed-size list column, without a copy if numpy allows it."""
    items = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(items, type=list_type(items.type, matrix.shape[1]))


def as_items(given: Any, label: str, element: np.dtype[Any]) -> npt.NDArray[Any]:
    """The value of a user's option, an Arrow column or anything numpy reads, in the column's type."""
    try:
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        array = to_matrix(given)[0] if isinstance(given, pa.FixedSizeListArray) else np.asarray(given)
        items = in_type(array, element)
    except (TypeError, ValueError) as error:
        what = "bytes" if element == np.uint8 else "floats"
        raise InvalidArgument(f"{label} cannot be read as {element}: {error}", f"Give an array of {what}") from error
    if not np.isfinite(items).all():
        raise InvalidArgument(f"{label} contain values that are not finite")
    return items


def in_type(array: npt.NDArray[Any], element: np.dtype[Any]) -> npt.NDArray[Any]:
    """Numbers in the type of a column, rounded to its floats. Raises ValueError for numbers that are no bytes where
    those are expected."""
    if element != np.uint8 or array.dtype == np.uint8:
        return np.ascontiguousarray(array, dtype=element)
    with np.errstate(invalid="ignore"):
        items = np.ascontiguousarray(array).astype(np.uint8)
    if not np.array_equal(items, array):
        raise ValueError("items are whole numbers from 0 to 255, eight bits each")
    return items


def list_type(element: pa.DataType, width: int) -> pa.DataType:
    return pa.list_(pa.field("item", element), width)


def row_chunks(rows: int, width: int) -> Iterator[slice]:
    """Slices of the rows of a matrix, for bounded temporaries."""
    step = max(64, CHUNK_ELEMENTS // max(width, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def sums_in_order(rows: Vectors) -> Vectors:
    """The sum of each row from its first item to its last, in its own precision.

    Any order would be correct, but this one gives exactly the bits, and so the codes, that pylance computes. numpy adds
    whole rows one after another, but the items of one row pairwise, so the matrix is transposed.
    """
    return np.ascontiguousarray(rows.T).sum(axis=0)
