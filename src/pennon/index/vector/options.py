"""The options of the seven vector index types, composed like the types: IVF, a graph or none, and codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pennon.errors import InvalidArgument
from pennon.index.option_text import documented
from pennon.index.options import IndexOptions, by_type, option, options_of
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.hnsw.graph import MIN_M, HnswParams
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.parameters import CodeOptions
from pennon.index.vector.quantizers.pq.shape import BITS as PQ_BITS
from pennon.index.vector.quantizers.pq.shape import DEFAULT_BITS as DEFAULT_PQ_BITS
from pennon.index.vector.quantizers.rabitq.quantizer import DEFAULT_BITS as DEFAULT_RQ_BITS
from pennon.index.vector.quantizers.rabitq.quantizer import MAX_BITS as MAX_RQ_BITS
from pennon.index.vector.quantizers.sq import NUM_BITS as SQ_BITS

MAX_PARTITIONS = 65_536
# The files of a segment are joined by one task, at about 200 MB/s.
SEGMENT_BYTES = 16 << 30
# A search probes partitions in every segment.
MOST_SEGMENTS = 32


@dataclass(frozen=True, kw_only=True)
class IvfOptions(IndexOptions):
    """The options of all vector indices."""

    metric: str | None = option(
        None,
        "Distance metric: l2, cosine or dot, or hamming for vectors of uint8.",
        unset="l2, or hamming for uint8; with fragment_ids, the metric of the index that the segment joins",
    )
    num_partitions: int | None = option(
        None,
        "Number of IVF partitions.",
        unset="the square root of the number of rows",
        at_least=1,
        at_most=MAX_PARTITIONS,
    )
    target_partition_size: int | None = option(
        None,
        "Rows per partition, to choose num_partitions. Ignored if num_partitions is given.",
        unset="follows from num_partitions",
        at_least=1,
    )
    sample_rate: int = option(256, "Number of training vectors per partition for k-means.", at_least=1)
    max_iters: int = option(
        50, "Maximum number of k-means iterations. Training stops earlier if it has converged.", at_least=1
    )
    seed: int = option(0, "Seed of sampling and training. Equal seeds give equal indices.", at_least=0)
    num_segments: int | None = option(
        None,
        "Number of segments, each over some of the fragments, with the same centroids. Each is joined by a task of its"
        " own, and searches probe partitions in every segment.",
        unset=f"one per {SEGMENT_BYTES >> 30} GiB of files, at most {MOST_SEGMENTS}",
        at_least=1,
    )
    ivf_centroids: Any = option(
        None, "Centroids to use instead of trained ones, [num_partitions, dimension] floats.", unset="trained"
    )

    @property
    def measure(self) -> Metric | None:
        """None: that of the column's type."""
        return None if self.metric is None else Metric.named(self.metric)

    @property
    def codes(self) -> CodeOptions:
        """The options that shape codes."""
        return CodeOptions()

    @property
    def graph(self) -> HnswParams | None:
        """The parameters of the graphs of partitions; None if there are no graphs."""
        return None

    def check(self) -> None:
        _ = self.measure, self.graph
        if self.codes.pq_codebook is not None and self.ivf_centroids is None:
            raise InvalidArgument("a pq_codebook fits only the centroids it was trained with", "Pass ivf_centroids too")

    def overridden(self) -> Mapping[str, str]:
        if self.target_partition_size is None:
            return {}
        if self.num_partitions is not None:
            return {"target_partition_size": "num_partitions takes precedence"}
        return {} if self.ivf_centroids is None else {"target_partition_size": "ivf_centroids take precedence"}

    @classmethod
    def ignored(cls) -> Mapping[str, str]:
        own = {each.name for each in options_of(cls)}
        others = {each.name for other in VECTOR_OPTIONS.values() for each in options_of(other)} - own
        cache = "cache sizes are set when a table is opened"
        return dict.fromkeys(sorted(others), "it is an option of other vector indices") | {"index_cache_size": cache}


@dataclass(frozen=True, kw_only=True)
class PqOptions(IvfOptions):
    num_sub_vectors: int | None = option(
        None,
        "Number of sub-vectors, each encoded as one codeword. Must divide the dimension, and be even with 4 bits.",
        unset="sub-vectors of 16 dimensions, or of 8, 4, 2 or 1 if 16 does not divide the dimension",
        at_least=1,
    )
    num_bits: int | None = option(None, "Bits per code.", unset=f"{DEFAULT_PQ_BITS}", choices=PQ_BITS)
    pq_codebook: Any = option(
        None,
        "Codewords to use instead of trained ones, [num_sub_vectors, 2^num_bits, dimension / num_sub_vectors] floats."
        " Needs ivf_centroids.",
        unset="trained",
    )

    @property
    def codes(self) -> CodeOptions:
        return CodeOptions(self.num_sub_vectors, self.num_bits, self.pq_codebook)


@dataclass(frozen=True, kw_only=True)
class SqOptions(IvfOptions):
    num_bits: int = option(SQ_BITS, "Bits per code.", choices=(SQ_BITS,))

    @property
    def codes(self) -> CodeOptions:
        return CodeOptions(num_bits=self.num_bits)


@dataclass(frozen=True, kw_only=True)
class RqOptions(IvfOptions):
    num_bits: int = option(DEFAULT_RQ_BITS, "Bits per code.", at_least=1, at_most=MAX_RQ_BITS)

    @property
    def codes(self) -> CodeOptions:
        return CodeOptions(num_bits=self.num_bits)


@dataclass(frozen=True, kw_only=True)
class HnswOptions(IvfOptions):
    m: int = option(HnswParams.m, "Links per node of the graph; up to 2m on level 0.", at_least=MIN_M)
    ef_construction: int = option(
        HnswParams.ef_construction,
        "Number of candidates from which the links of a node are chosen; at least m.",
        at_least=1,
    )
    max_level: int = option(HnswParams.max_level, "Maximum number of levels of the graph.", at_least=1)

    @property
    def graph(self) -> HnswParams:
        return HnswParams(self.max_level, self.m, self.ef_construction)


@documented
@dataclass(frozen=True, kw_only=True)
class IvfFlat(IvfOptions):
    """Options of an IVF index that holds the vectors themselves."""

    index_type: ClassVar[str] = "IVF_FLAT"


@documented
@dataclass(frozen=True, kw_only=True)
class IvfPq(PqOptions):
    """Options of an IVF index with codes of product quantization: the smallest, to be searched with refine_factor."""

    index_type: ClassVar[str] = "IVF_PQ"


@documented
@dataclass(frozen=True, kw_only=True)
class IvfSq(SqOptions):
    """Options of an IVF index with codes of scalar quantization: one byte a dimension."""

    index_type: ClassVar[str] = "IVF_SQ"


@documented
@dataclass(frozen=True, kw_only=True)
class IvfRq(RqOptions):
    """Options of an IVF index with codes of RaBitQ: 1 to 9 bits a dimension."""

    index_type: ClassVar[str] = "IVF_RQ"


@documented
@dataclass(frozen=True, kw_only=True)
class IvfHnswFlat(HnswOptions):
    """Options of an IVF index with a graph in every partition, over the vectors themselves."""

    index_type: ClassVar[str] = "IVF_HNSW_FLAT"


@documented
@dataclass(frozen=True, kw_only=True)
class IvfHnswPq(PqOptions, HnswOptions):
    """Options of an IVF index with a graph in every partition, over codes of product quantization."""

    index_type: ClassVar[str] = "IVF_HNSW_PQ"


@documented
@dataclass(frozen=True, kw_only=True)
class IvfHnswSq(SqOptions, HnswOptions):
    """Options of an IVF index with a graph in every partition, over codes of scalar quantization."""

    index_type: ClassVar[str] = "IVF_HNSW_SQ"


VECTOR_OPTIONS: Mapping[str, type[IvfOptions]] = by_type(
    IvfFlat, IvfPq, IvfSq, IvfRq, IvfHnswFlat, IvfHnswPq, IvfHnswSq
)


def recorded_options(details: VectorDetails, **more: Any) -> IvfOptions:
    """The options of an index that its details record, and additional ones."""
    cls = VECTOR_OPTIONS[details.kind.name]
    recorded = {
        "metric": details.metric.value,
        "num_bits": details.num_bits,
        "num_sub_vectors": details.num_sub_vectors,
    }
    if details.hnsw is not None:
        graph = details.hnsw
        recorded |= {"m": graph.m, "ef_construction": graph.ef_construction, "max_level": graph.max_level}
    taken = {each.name for each in options_of(cls)}
    known = {name: value for name, value in recorded.items() if name in taken and value is not None}
    return cls(**known, **more)
