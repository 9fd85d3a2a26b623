"""Quantizers trained by name."""

from __future__ import annotations

from pennon.index.vector.ivf import Ivf
from pennon.index.vector.quantizers.base import Quantizer
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.quantizers.rabitq.quantizer import RabitQuantizer
from pennon.index.vector.quantizers.sq import ScalarQuantizer
from pennon.index.vector.vectors import Vectors


def train(name: str, vectors: Vectors, ivf: Ivf) -> Quantizer:
    match name:
        case "FLAT":
            return FlatQuantizer.train(vectors, ivf)
        case "SQ":
            return ScalarQuantizer.train(vectors, ivf)
        case "PQ":
            return ProductQuantizer.train(vectors, ivf, num_sub_vectors=8, max_iters=3)
        case "PQ4":
            return ProductQuantizer.train(vectors, ivf, num_sub_vectors=8, num_bits=4, max_iters=3)
        case _:
            return RabitQuantizer.train(vectors, ivf, num_bits=int(name.removeprefix("RQ")))
