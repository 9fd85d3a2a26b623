"""RQ (RaBitQ): the residual to the centroid is rotated, and 1 to 9 bits of every dimension are kept: the sign, and with
more bits the magnitude on a grid whose scale is chosen for each vector. A few factors per row turn inner products with
the grid into distances, without bias.

Columns: `_rabit_codes` (signs), `__add_factors`, `__scale_factors`, `__error_factors`, and with more than one bit
`__blocked_ex_codes`, `__add_factors_ex`, `__scale_factors_ex`; `layout` describes the bytes.

`storage_metadata` is `{"rotate_mat_position": null | global buffer, "fast_rotation_signs": [bytes] | null,
"rotation_type": "fast" | "matrix", "code_dim": D, "num_bits", "packed", "query_estimator": "raw_query"}`. The older
form `{"rotate_mat_position", "num_bits": 1, "packed"}` is a matrix rotation with the estimator "residual_query", which
rotates the query's residual instead of the query and uses only signs, add and scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.files.tensor import read_tensor, to_tensor
from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.quantizers.base import QUANTIZER_BUFFER, Columns, QuantizerBase, residuals
from pennon.index.vector.quantizers.parameters import CodeDetails, CodeOptions, CodeShape, Sample
from pennon.index.vector.quantizers.rabitq.grid import grid_points
from pennon.index.vector.quantizers.rabitq.inverted_lists import search_lists
from pennon.index.vector.quantizers.rabitq.layout import (
    blocked_width,
    pack_blocked,
    pack_rows,
    unpack_blocked,
    unpack_rows,
    unpack_stream,
)
from pennon.index.vector.quantizers.rabitq.rotation import FastRotation, MatrixRotation, Rotation
from pennon.index.vector.quantizers.rabitq.scorer import Estimator, RabitScorer, Signs, in_words
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors, list_type, row_chunks

SIGNS = "_rabit_codes"
ADD, SCALE, ERROR = "__add_factors", "__scale_factors", "__error_factors"
EXTRA, ADD_EXTRA, SCALE_EXTRA = "__blocked_ex_codes", "__add_factors_ex", "__scale_factors_ex"
EXTRA_STREAM = "__ex_codes"  # the column of older writers instead of the blocked codes

RAW_QUERY, RESIDUAL_QUERY = "raw_query", "residual_query"
MAX_BITS = 9
DEFAULT_BITS = 5

# Half the width of RaBitQ's confidence interval, in standard deviations; pylance skips rows by it.
CONFIDENCE = 1.9


@dataclass(frozen=True, eq=False)
class RabitQuantizer(QuantizerBase):
    name: ClassVar[str] = "RQ"
    index_version: ClassVar[int] = 2  # older readers must not use it
    details_field: ClassVar[str] = "rq"
    scanned_queries: ClassVar[int] = Estimator.scanned_queries

    metric: Metric
    rotation: Rotation
    num_bits: int
    estimator: str = RAW_QUERY
    packed: bool = True

    def __post_init__(self) -> None:
        _check_bits(self.num_bits)
        if self.estimator != RAW_QUERY and (self.estimator, self.num_bits) != (RESIDUAL_QUERY, 1):
            raise InvalidArgument(f"RQ has no estimator {self.estimator!r} for num_bits={self.num_bits}")

    @property
    def dim(self) -> int:
        return self.rotation.dim

    @property
    def extra_bits(self) -> int:
        return self.num_bits - 1

    @classmethod
    def shape(cls, options: CodeOptions, dim: int, element: np.dtype[Any]) -> CodeShape:
        bits = DEFAULT_BITS if options.num_bits is None else options.num_bits
        _check_bits(bits)
        _check_dim(dim)
        extra = blocked_width(dim, bits - 1) + 8 if bits > 1 else 0
        return CodeShape(dim // 8 + 12 + extra, num_bits=bits)

    @classmethod
    def train(cls, sample: Vectors, ivf: Ivf, *, num_bits: int = DEFAULT_BITS, seed: int = 0) -> Self:
        _check_dim(ivf.dim)
        return cls(ivf.metric, FastRotation.random(ivf.dim, seed), num_bits)

    @classmethod
    def from_sample(cls, sample: Sample, ivf: Ivf, shape: CodeShape, *, max_iters: int, seed: int) -> Self:
        return cls.train(sample.vectors, ivf, num_bits=shape.num_bits or DEFAULT_BITS, seed=seed)

    def details(self) -> CodeDetails:
        return CodeDetails(self.num_bits, matrix_rotation=isinstance(self.rotation, MatrixRotation))

    @classmethod
    def write_details(cls, details: CodeDetails, message: pb.VectorIndexDetails) -> None:
        rotations = pb.VectorIndexDetails.RabitQuantization
        message.rq.num_bits = details.num_bits or 0
        message.rq.rotation = rotations.MATRIX if details.matrix_rotation else rotations.FAST

    @classmethod
    def read_details(cls, message: pb.VectorIndexDetails) -> CodeDetails:
        matrix = message.rq.rotation == pb.VectorIndexDetails.RabitQuantization.MATRIX
        return CodeDetails(message.rq.num_bits, matrix_rotation=matrix)

    def fields(self) -> list[pa.Field]:
        names = [ADD, SCALE, ERROR] if self.estimator == RAW_QUERY else [ADD, SCALE]
        stored = [pa.field(SIGNS, list_type(pa.uint8(), self.dim // 8))]
        stored += [pa.field(name, pa.float32()) for name in names]
        if self.extra_bits:
            stored.append(pa.field(EXTRA, list_type(pa.uint8(), blocked_width(self.dim, self.extra_bits))))
            stored += [pa.field(name, pa.float32()) for name in (ADD_EXTRA, SCALE_EXTRA)]
        return stored

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns:
        used, which = np.unique(partition_ids, return_inverse=True)
        centres = centroids[used].astype(np.float32)
        turned = self.rotation.apply(centres)
        columns = {field.name: _empty_column(field, len(vectors)) for field in self.fields()}
        for rows in row_chunks(len(vectors), self.dim):
            differences = residuals(vectors[rows], centroids, partition_ids[rows])
            for name, values in self._encode(differences, centres, turned, which[rows]).items():
                columns[name][rows] = values
        return columns

    def pack(self, columns: Columns) -> Columns:
        return {**columns, SIGNS: pack_rows(columns[SIGNS])} if self.packed else columns

    def unpack(self, columns: Columns) -> Columns:
        plain = dict(columns)
        if self.packed:
            plain[SIGNS] = unpack_rows(columns[SIGNS])
        if self.extra_bits and EXTRA not in plain:
            values = unpack_stream(plain.pop(EXTRA_STREAM), self.extra_bits, self.dim)
            plain[EXTRA] = pack_blocked(values, self.extra_bits)
        if not self.extra_bits and self.estimator == RAW_QUERY and ERROR not in plain:
            # The error of 1-bit codes is not used, and older writers omit it.
            plain[ERROR] = np.zeros(len(plain[ADD]), dtype=np.float32)
        return plain

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        fast = self.rotation if isinstance(self.rotation, FastRotation) else None
        metadata = {
            "rotate_mat_position": None if fast else QUANTIZER_BUFFER,
            "fast_rotation_signs": list(fast.signs) if fast else None,
            "rotation_type": "fast" if fast else "matrix",
            "code_dim": self.dim,
            "num_bits": self.num_bits,
            "packed": self.packed,
            "query_estimator": self.estimator,
        }
        if isinstance(self.rotation, FastRotation):
            return metadata, []
        return metadata, [to_tensor(self.rotation.stored).SerializeToString()]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], ivf: Ivf, read_buffer: Callable[[int], bytes]) -> Self:
        if metadata.get("rotation_type", "matrix") == "fast":
            rotation = FastRotation(bytes(metadata["fast_rotation_signs"]), int(metadata["code_dim"]))
        else:
            rotation = MatrixRotation(read_tensor(read_buffer(int(metadata["rotate_mat_position"]))))
        estimator = str(metadata.get("query_estimator", RESIDUAL_QUERY))
        return cls(ivf.metric, rotation, int(metadata["num_bits"]), estimator, bool(metadata["packed"]))

    def prepare(self, queries: Vectors) -> Floats:
        """The query followed by the rotated query: rotating is expensive, so it is done once for all partitions."""
        plain = queries.astype(np.float32, copy=False)
        return np.concatenate([plain, self.rotation.apply_to_queries(plain)], axis=1)

    def scorer(self, columns: Columns, centroid: Vectors) -> RabitScorer:
        centre, codes = centroid.astype(np.float32), np.ascontiguousarray(columns[SIGNS])
        error = columns[ERROR] if self.extra_bits else np.zeros(len(codes), dtype=np.float32)
        signs = Signs(in_words(codes), np.stack([columns[ADD], columns[SCALE], error]))
        if not self.extra_bits:
            turned = self.rotation.apply_to_queries(centre[None])[0] if self.estimator == RESIDUAL_QUERY else None
            return RabitScorer(codes, signs.factors[:2], self._estimator, signs, centre, turned)
        width = np.uint16 if self.num_bits > 8 else np.uint8
        high = np.unpackbits(codes, axis=1, count=self.dim, bitorder="little").astype(width) << width(self.extra_bits)
        numbers = high | unpack_blocked(columns[EXTRA], self.extra_bits, self.dim)
        factors = np.stack([columns[ADD_EXTRA], columns[SCALE_EXTRA]])
        return RabitScorer(numbers, factors, self._estimator, signs, centre)

    def scan(
        self, query: Floats, probed: Sequence[RabitScorer], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        return self._estimator.scan(query, probed, k, allowed)

    @property
    def lists_searchable(self) -> bool:
        return self.estimator == RAW_QUERY

    def search_lists(
        self,
        probed: Sequence[Any],
        queries: Vectors,
        places: Positions,
        k: int,
        allowed: Mask | None,
        threads: int,
    ) -> tuple[Floats, Positions]:
        return search_lists(self._estimator, probed, queries, places, k, allowed, threads)

    @cached_property
    def _estimator(self) -> Estimator:
        return Estimator(self.metric, self.dim, self.extra_bits, self.estimator == RESIDUAL_QUERY)

    def _encode(self, differences: Floats, centres: Floats, turned_centres: Floats, which: Positions) -> Columns:
        """One chunk of residuals; row i has the centroid which[i], plain and rotated."""
        turned, lengths = self.rotation.apply(differences), squared_lengths(differences)
        positive = ~np.signbit(turned)
        columns = {SIGNS: np.packbits(positive, axis=1, bitorder="little")}
        if self.estimator == RESIDUAL_QUERY:
            return columns | self._residual_factors(turned, lengths, differences, centres[which])
        found = grid_points(turned, positive, which, turned_centres, self.extra_bits)
        residual_products = found.residual_centre
        columns |= self._factors(lengths, found.signs_self, found.signs_centre, residual_products, ADD, SCALE)
        columns[ERROR] = self._errors(lengths, found.signs_self)
        if self.extra_bits:
            columns[EXTRA] = pack_blocked(found.extra, self.extra_bits)
            columns |= self._factors(lengths, found.self_, found.centre, residual_products, ADD_EXTRA, SCALE_EXTRA)
        return columns

    def _factors(
        self,
        lengths: Floats,
        products: Floats,
        centre_products: Floats,
        residual_products: Floats,
        add: str,
        scale: str,
    ) -> dict[str, Floats]:
        """The factors that turn t = grid·query into a distance: t * scale + add + the share of the centroid. From the
        products of grid points with residuals and with centroids, and of residuals with centroids."""
        ratio = _ratio(lengths, products)
        correction = ratio * centre_products
        if self.metric.by_l2:
            return {add: lengths + np.float32(2) * correction, scale: np.float32(-2) * ratio}
        return {add: correction - residual_products + np.float32(1), scale: -ratio}

    def _errors(self, lengths: Floats, products: Floats) -> Floats:
        excess = np.maximum(_ratio(lengths * np.float32(self.dim / 4), products * products) - 1, 0)
        errors = CONFIDENCE * np.sqrt(lengths * excess / max(self.dim - 1, 1))
        return (2 * errors if self.metric.by_l2 else errors).astype(np.float32)

    def _residual_factors(
        self, turned: Floats, lengths: Floats, differences: Floats, centres: Floats
    ) -> dict[str, Floats]:
        ratio = _ratio(lengths, np.abs(turned).sum(axis=1) / np.float32(np.sqrt(self.dim)))
        if self.metric.by_l2:
            return {ADD: lengths, SCALE: np.float32(-2) * ratio}
        # 1 - x·c + c·c, where x = c + difference.
        return {ADD: np.float32(1) - _dots(differences, centres), SCALE: -ratio}


def _check_bits(num_bits: int) -> None:
    if not 1 <= num_bits <= MAX_BITS:
        raise InvalidArgument(f"RQ codes have 1 to {MAX_BITS} bits, not {num_bits}")


def _check_dim(dim: int) -> None:
    if dim % 8:
        raise InvalidArgument(f"RQ needs a dimension divisible by 8, not {dim}", "Choose another index type")


def _empty_column(field: pa.Field, rows: int) -> npt.NDArray[Any]:
    if pa.types.is_fixed_size_list(field.type):
        return np.empty((rows, field.type.list_size), dtype=np.uint8)
    return np.empty(rows, dtype=np.float32)


def _dots(left: Floats, right: Floats) -> Floats:
    return np.einsum("ij,ij->i", left, right)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """0 if the denominator is 0: a vector that equals its centroid."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)
