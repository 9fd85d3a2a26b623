"""The seven vector indices, each a sub-index over IVF partitions and a quantizer, without a class per combination."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pennon.errors import UnknownIndexType
from pennon.index.vector.quantizers.base import Quantizer
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.quantizers.rabitq.quantizer import RabitQuantizer
from pennon.index.vector.quantizers.sq import ScalarQuantizer


class SubIndex(StrEnum):
    """How the vectors of a partition are searched: exhaustively, or along a graph."""

    FLAT = "FLAT"
    HNSW = "HNSW"


@dataclass(frozen=True)
class VectorKind:
    sub_index: SubIndex
    quantizer: type[Quantizer]

    @property
    def name(self) -> str:
        """The index type; it names the sub-index unless that is FLAT."""
        graph = f"{self.sub_index}_" if self.sub_index is not SubIndex.FLAT else ""
        return f"IVF_{graph}{self.quantizer.name}"

    @property
    def index_version(self) -> int:
        return self.quantizer.index_version


VECTOR_KINDS: dict[str, VectorKind] = {
    kind.name: kind
    for kind in (
        VectorKind(SubIndex.FLAT, FlatQuantizer),
        VectorKind(SubIndex.FLAT, ProductQuantizer),
        VectorKind(SubIndex.FLAT, ScalarQuantizer),
        VectorKind(SubIndex.FLAT, RabitQuantizer),
        VectorKind(SubIndex.HNSW, FlatQuantizer),
        VectorKind(SubIndex.HNSW, ProductQuantizer),
        VectorKind(SubIndex.HNSW, ScalarQuantizer),
    )
}


# The four quantizers, by the name of their message in `VectorIndexDetails`.
QUANTIZERS: dict[str, type[Quantizer]] = {
    kind.quantizer.details_field: kind.quantizer for kind in VECTOR_KINDS.values()
}


def vector_kind(name: str) -> VectorKind:
    kind = VECTOR_KINDS.get(name.upper())
    if kind is None:
        raise UnknownIndexType(f"unknown vector index type {name!r}", f"Pennon builds: {', '.join(VECTOR_KINDS)}")
    return kind
