"""Matrices in the global buffers of index files: centroids, codebooks, rotations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.format.pb import lance_pb2 as pb

_TYPES: dict[pb.Tensor.DataType, np.dtype[Any]] = {
    pb.Tensor.FLOAT16: np.dtype("<f2"),
    pb.Tensor.FLOAT32: np.dtype("<f4"),
    pb.Tensor.FLOAT64: np.dtype("<f8"),
    pb.Tensor.UINT8: np.dtype("u1"),
}


def to_tensor(matrix: npt.NDArray[Any]) -> pb.Tensor:
    (data_type,) = (code for code, type_ in _TYPES.items() if type_ == matrix.dtype)
    return pb.Tensor(data_type=data_type, shape=list(matrix.shape), data=np.ascontiguousarray(matrix).tobytes())


def from_tensor(tensor: pb.Tensor) -> npt.NDArray[Any]:
    """The matrix. Raises ValueError unless the tensor has two dimensions, as pylance requires."""
    type_, shape = _TYPES.get(tensor.data_type), tuple(tensor.shape)
    if type_ is None or len(shape) != 2:
        raise ValueError(f"a tensor of type {tensor.data_type} and shape {shape}")
    return np.frombuffer(tensor.data, dtype=type_).reshape(shape)


def read_tensor(buffer: bytes) -> npt.NDArray[Any]:
    return from_tensor(pb.Tensor.FromString(buffer))
