"""What every quantizer promises to those who do not ask which one it is."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.errors import InvalidArgument
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kinds import QUANTIZERS
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.quantizers.base import Quantizer
from pennon.index.vector.quantizers.parameters import CodeOptions, Sample
from pennon.index.vector.vectors import Vectors
from tests.support.vectors import clustered

DIM = 16
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "FLAT": ("flat", {}),
    "SQ": ("sq", {}),
    "PQ": ("pq", {}),
    "PQ, 4 bits": ("pq", {"num_bits": 4, "num_sub_vectors": 8}),
    "PQ, codebook": ("pq", {"pq_codebook": np.random.default_rng(3).normal(size=(4, 16, 4))}),
    "RQ": ("rq", {}),
    "RQ, 1 bit": ("rq", {"num_bits": 1}),
    "RQ, 9 bits": ("rq", {"num_bits": 9}),
}


def trained(case: str, vectors: Vectors, metric: Metric = Metric.L2) -> Quantizer:
    name, options = CASES[case]
    quantizer, sample = QUANTIZERS[name], Sample(vectors, float(vectors.min()), float(vectors.max()))
    shape = quantizer.shape(CodeOptions(**options), DIM, vectors.dtype)
    return quantizer.from_sample(sample, Ivf(metric, vectors[:2]), shape, max_iters=3, seed=1)


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_the_shape_foretells_what_a_row_takes_in_the_file(case: str, element: Any) -> None:
    name, options = CASES[case]
    shape = QUANTIZERS[name].shape(CodeOptions(**options), DIM, np.dtype(element))
    fields = trained(case, clustered(300, DIM).astype(element)).fields()
    assert shape.row_bytes == sum(byte_width(field.type) for field in fields)


def byte_width(type_: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type_):
        return type_.list_size * byte_width(type_.value_type)
    return type_.bit_width // 8


@pytest.mark.parametrize("case", CASES)
def test_the_manifest_records_the_shape(case: str) -> None:
    name, options = CASES[case]
    shape = QUANTIZERS[name].shape(CodeOptions(**options), DIM, np.dtype(np.float32))
    details = trained(case, clustered(300, DIM).astype(np.float32)).details()
    assert (details.num_bits, details.num_sub_vectors) == (shape.num_bits, shape.num_sub_vectors)


def test_codes_share_a_segment_only_with_those_of_an_equal_quantizer() -> None:
    vectors = clustered(300, DIM).astype(np.float32)
    found = {case: trained(case, vectors) for case in CASES}
    for case, quantizer in found.items():
        assert quantizer.agrees_with(trained(case, vectors))
    assert not any(found[one].agrees_with(found[other]) for one, other in combinations(found, 2))


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("case", CASES)
def test_codes_differ_from_those_of_other_vectors_only(case: str, metric: Metric) -> None:
    vectors = metric.prepare(clustered(300, DIM).astype(np.float32))
    quantizer, ids = trained(case, vectors, metric), np.zeros(300, dtype=np.uint32)
    stored = quantizer.encode(vectors, vectors[:2], ids)
    fresh = quantizer.encode(metric.prepare(-3 * vectors), vectors[:2], ids)
    assert not quantizer.differs(stored, stored).any()
    assert quantizer.differs(stored, fresh).mean() > 0.9


@pytest.mark.parametrize("case", CASES)
def test_graphs_measure_by_l2_unless_the_distance_is_an_inner_product(case: str) -> None:
    vectors = clustered(300, DIM).astype(np.float32)
    measured = {metric: trained(case, vectors, metric).by_l2 for metric in FLOAT_METRICS}
    assert measured == {Metric.L2: True, Metric.COSINE: case != "FLAT", Metric.DOT: False}


@pytest.mark.parametrize(
    ("name", "dim", "options"),
    [
        ("sq", 16, {"num_bits": 4}),
        ("rq", 16, {"num_bits": 0}),
        ("rq", 16, {"num_bits": 10}),
        ("rq", 12, {}),
        ("pq", 16, {"num_bits": 6}),
        ("pq", 16, {"num_sub_vectors": 5}),
        ("pq", 15, {"num_bits": 4}),
    ],
)
def test_codes_that_cannot_be_are_refused(name: str, dim: int, options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        QUANTIZERS[name].shape(CodeOptions(**options), dim, np.dtype(np.float32))
