"""The distances of an index as the format defines them: row by row, in double precision, from the stored columns."""

from __future__ import annotations

import numpy as np

from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.base import Columns, Quantizer
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.quantizers.rabitq.layout import unpack_blocked
from pennon.index.vector.quantizers.rabitq.quantizer import RESIDUAL_QUERY, RabitQuantizer
from pennon.index.vector.quantizers.sq import ScalarQuantizer


def distances_by_definition(
    quantizer: Quantizer, columns: Columns, centroid: np.ndarray, queries: np.ndarray
) -> np.ndarray:
    """Of prepared queries, [q, n]."""
    asked, centre = queries.astype(np.float64), centroid.astype(np.float64)
    match quantizer:
        case FlatQuantizer():
            return flat(quantizer.metric, columns["flat"].astype(np.float64), asked)
        case ProductQuantizer():
            # Residuals are taken in the column's type, those of queries too.
            return product(quantizer, columns["__pq_code"], asked, (queries - centroid).astype(np.float64))
        case ScalarQuantizer():
            return scalar(quantizer, columns["__sq_code"].astype(np.float64), asked)
        case RabitQuantizer():
            return rabit(quantizer, columns, asked, centre)
        case _:
            raise AssertionError(quantizer)


def flat(metric: Metric, rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    if metric is Metric.L2:
        return squares(queries[:, None] - rows)
    if metric is Metric.COSINE:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return 1 - queries @ rows.T


def product(quantizer: ProductQuantizer, codes: np.ndarray, queries: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    if quantizer.num_bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), quantizer.num_sub_vectors)
    book = quantizer.codebook.astype(np.float64)
    rows = np.concatenate([book[j, codes[:, j]] for j in range(quantizer.num_sub_vectors)], axis=1)
    if quantizer.metric is Metric.DOT:
        return 1 - queries @ rows.T
    return squares(residuals[:, None] - rows)


def scalar(quantizer: ScalarQuantizer, codes: np.ndarray, queries: np.ndarray) -> np.ndarray:
    low, high = quantizer.low, quantizer.high
    if quantizer.metric is Metric.DOT:
        return 1 - (low * queries.sum(axis=1)[:, None] + (high - low) / 255 * (queries @ codes.T))
    asked = np.clip(np.trunc((queries - low) * 255 / (high - low)), 0, 255)
    return squares(asked[:, None] - codes) * ((high - low) / 255) ** 2


def rabit(quantizer: RabitQuantizer, columns: Columns, queries: np.ndarray, centre: np.ndarray) -> np.ndarray:
    dim, extra = quantizer.dim, quantizer.extra_bits
    turn = quantizer.rotation.matrix.astype(np.float64)
    bits = np.unpackbits(columns["_rabit_codes"], axis=1, count=dim, bitorder="little").astype(np.float64)
    suffix = "_ex" if extra else ""
    add, scale = (columns[f"__{name}_factors{suffix}"].astype(np.float64) for name in ("add", "scale"))
    by_l2, products = quantizer.metric.by_l2, (queries @ centre)[:, None]
    to_centre = squares(queries - centre)[:, None]
    if quantizer.estimator == RESIDUAL_QUERY:
        t = ((queries - centre) @ turn.T) @ (2 * bits - 1).T / np.sqrt(dim)
        return t * scale + add + (to_centre if by_l2 else (1 - products) - 1)
    grid = bits * 2**extra - (2**extra - 0.5)
    if extra:
        grid += unpack_blocked(columns["__blocked_ex_codes"], extra, dim)
    t = (queries @ turn.T) @ grid.T
    if by_l2:
        return t * scale + add + to_centre
    return t * scale + products / (centre @ centre) * (add - 1) + 1 - products


def squares(differences: np.ndarray) -> np.ndarray:
    return (differences * differences).sum(axis=-1)
