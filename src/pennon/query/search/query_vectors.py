"""Query vectors as users give them, in the type of the column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.format.schema import Column, stored_values
from pennon.index.vector.vectors import Positions, Vectors, VectorType, in_type, to_matrix

# One vector, as a list, a numpy array, an Arrow array or an Arrow scalar; several as lists, a matrix or Arrow lists.
VectorLike = Any


def read_queries(given: VectorLike, column: Column, many: bool) -> Vectors:
    """A matrix with a row for each query, or for the only one."""
    array, held = _to_numpy(given), VectorType.of(column.type)
    if many and array.size == 0 and array.ndim <= 2:
        array = np.empty((0, held.dim))
    if array.dtype.kind not in "fiu":
        raise InvalidArgument("a query vector has items that are not numbers", "Give vectors of floats without NULLs")
    if array.ndim != (2 if many else 1):
        wanted = "a list of vectors or a matrix with one query per row" if many else "one vector"
        remedy = "For one query use search" if many else "For several queries use search_batch"
        raise InvalidArgument(f"an array of {array.ndim} dimensions where {wanted} is expected", remedy)
    if array.shape[-1] != held.dim:
        raise InvalidArgument(
            f"a query vector has {array.shape[-1]} items, vectors of column {column.path!r} have {held.dim}",
            "Embed the query with the model that made the column",
        )
    with np.errstate(over="ignore"):
        try:
            queries = in_type(array, held.element)
        except ValueError as error:
            raise InvalidArgument(
                f"a query vector of column {column.path!r} cannot be read: {error}", "Give the bytes of its bits"
            ) from error
    if not np.isfinite(queries).all():
        raise InvalidArgument(
            f"a query vector has items that are NaN, infinite or too large for {held.item}",
            "Leave such vectors out; they have no distance to anything",
        )
    return queries if many else queries[None]


def read_several(given: VectorLike, column: Column, many: bool) -> tuple[Vectors, Positions]:
    """The vectors of all queries, and the first of each. A query is a list of vectors or a matrix, or a single one."""
    try:
        queries = [_to_numpy(one) for one in (given if many else [given])]
    except TypeError as error:
        raise InvalidArgument(f"the queries cannot be read: {error}", "Give a list of them") from error
    read = [read_queries(one, column, many=one.ndim != 1 or not one.size) for one in queries]
    counts = np.array([len(one) for one in read], dtype=np.int64)
    if not counts.all():
        raise InvalidArgument("a query has no vectors", "Give a list of vectors or a matrix")
    vectors = np.concatenate([np.empty((0, VectorType.of(column.type).dim), dtype=np.float16), *read])
    return vectors.astype(VectorType.of(column.type).element), np.cumsum(counts) - counts


def _to_numpy(given: VectorLike) -> npt.NDArray[Any]:
    if isinstance(given, np.ndarray):
        return given
    try:
        if isinstance(given, pa.Scalar):
            given = given.value if isinstance(given, pa.ExtensionScalar) else given
            given = given.values if hasattr(given, "values") else given.as_py()
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if isinstance(given, pa.Array):
            given = stored_values(given)
            if pa.types.is_fixed_size_list(given.type) and not given.null_count:
                matrix, whole = to_matrix(given)
                return matrix if whole.all() else np.array([None])
            given = given.to_pylist() if pa.types.is_nested(given.type) else given.to_numpy(zero_copy_only=False)
        return np.asarray(given)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InvalidArgument(
            f"the query cannot be read as vectors: {error}", "Give numbers, in equal lengths"
        ) from error
