"""The codewords of PQ: trained, read from the tensor of a file, and laid out by byte for decoding and scans."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import faiss
import numpy as np

from pennon.format.pb import lance_pb2 as pb
from pennon.index.threads import one_thread
from pennon.index.vector.files.tensor import from_tensor
from pennon.index.vector.kmeans.training import train_kmeans
from pennon.index.vector.vectors import Codes, Floats, Vectors

# Codewords are few and used for every row, so they are trained until further passes gain almost nothing.
CODEWORD_TOLERANCE = 1e-3


def train_codebooks(targets: Floats, num_sub_vectors: int, num_bits: int, *, max_iters: int, seed: int) -> list[Floats]:
    """The codewords of all sub-spaces, several at once; the same bits for any number of threads."""
    parts = np.split(targets, num_sub_vectors, axis=1)

    def train(number: int) -> Floats:
        with one_thread():
            return train_codebook(parts[number], num_bits, max_iters=max_iters, seed=seed + number)

    with ThreadPoolExecutor(faiss.omp_get_max_threads()) as workers:
        return list(workers.map(train, range(num_sub_vectors)))


def train_codebook(targets: Floats, num_bits: int, *, max_iters: int = 50, seed: int = 0) -> Floats:
    """The codewords of one sub-space, [2^bits, width], from that part of the targets."""
    size = 1 << num_bits
    # A sample smaller than the codebook is repeated: each of its vectors then has its own codeword.
    points = np.resize(targets, (max(len(targets), size), targets.shape[1]))
    trained = train_kmeans(points, size, max_iters=max_iters, tolerance=CODEWORD_TOLERANCE, seed=seed)
    return trained.centroids.astype(np.float32, copy=False)


def read_codebook(tensor: pb.Tensor, num_sub_vectors: int) -> Vectors:
    """The codebook as [m, 2^bits, dim / m]."""
    if len(tensor.shape) != 3:
        words = from_tensor(tensor)
        return words.reshape(num_sub_vectors, len(words), -1)
    size, shape = tensor.shape[0], tuple(tensor.shape)
    flat = pb.Tensor(data_type=tensor.data_type, shape=[size, shape[1] * shape[2]], data=tensor.data)
    return np.ascontiguousarray(from_tensor(flat).reshape(shape).transpose(1, 0, 2))


@dataclass(frozen=True, eq=False)
class ByteBook:
    """The codebook by byte: [bytes, 256, dim / bytes]. A byte of two 4-bit codes names a pair of codewords, which is
    one of 256 codewords of twice the width, so that from here on 4 bits are 8 bits with half the sub-vectors."""

    words: Floats

    @classmethod
    def of(cls, codebook: Vectors) -> Self:
        words = codebook.astype(np.float32)
        if words.shape[1] == 16:
            low, high = words[0::2, np.arange(256) & 15], words[1::2, np.arange(256) >> 4]
            words = np.concatenate([low, high], axis=2)
        return cls(np.ascontiguousarray(words))

    def decode(self, codes: Codes) -> Floats:
        count, _, width = self.words.shape
        flat = np.add(codes, np.arange(count) * 256, dtype=np.intp)
        return self.words.reshape(-1, width).take(flat.reshape(-1), axis=0).reshape(len(codes), count * width)
