"""The details of a vector index in the manifest: enough to list it and to train it again. Searches use only the
files."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from pennon.errors import DamagedFile, InvalidArgument
from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.kinds import QUANTIZERS, SubIndex, VectorKind
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.base import Quantizer
from pennon.index.vector.quantizers.parameters import CodeDetails

_Message = pb.VectorIndexDetails
_METRICS = {
    Metric.L2: _Message.L2,
    Metric.COSINE: _Message.COSINE,
    Metric.DOT: _Message.DOT,
    Metric.HAMMING: _Message.HAMMING,
}


@dataclass(frozen=True)
class VectorDetails:
    kind: VectorKind
    metric: Metric
    num_bits: int | None = None  # PQ, SQ, RQ
    num_sub_vectors: int | None = None  # PQ
    matrix_rotation: bool = False  # RQ
    hnsw: HnswParams | None = None
    target_partition_size: int | None = None  # pylance's retrain derives the number of partitions from it

    @classmethod
    def of(
        cls,
        kind: VectorKind,
        quantizer: Quantizer,
        hnsw: HnswParams | None = None,
        target_partition_size: int | None = None,
    ) -> VectorDetails:
        return cls(kind, quantizer.metric, *quantizer.details(), hnsw, target_partition_size)

    def to_bytes(self) -> bytes:
        message = _Message(metric=_METRICS[self.metric], target_partition_size=self.target_partition_size or 0)
        if self.hnsw is not None:
            message.hnsw.m, message.hnsw.ef_construction = self.hnsw.m, self.hnsw.ef_construction
            message.hnsw.max_level = self.hnsw.max_level
        codes = CodeDetails(self.num_bits, self.num_sub_vectors, self.matrix_rotation)
        self.kind.quantizer.write_details(codes, message)
        return message.SerializeToString()

    @classmethod
    def from_bytes(cls, value: bytes) -> VectorDetails | None:
        """None if the details are empty, as by older writers, or name an unknown metric: then the files must be
        read."""
        try:
            message = _Message.FromString(value)
            graph = message.hnsw
            hnsw = HnswParams(graph.max_level, graph.m, graph.ef_construction) if message.HasField("hnsw") else None
        except (DecodeError, InvalidArgument) as error:
            raise DamagedFile(f"the details of a vector index cannot be read: {error}") from error
        metric = next((metric for metric, code in _METRICS.items() if code == message.metric), None)
        quantization = message.WhichOneof("quantization")
        if quantization is None or metric is None:
            return None
        kind = VectorKind(SubIndex.HNSW if hnsw else SubIndex.FLAT, QUANTIZERS[quantization])
        codes = kind.quantizer.read_details(message)
        return cls(kind, metric, *codes, hnsw, message.target_partition_size or None)
