"""The shape of PQ codes: sub-vectors and bits from the options, from a given codebook, or by default."""

from __future__ import annotations

from typing import Any

import numpy as np

from pennon.errors import InvalidArgument
from pennon.index.vector.quantizers.parameters import CodeOptions, CodeShape
from pennon.index.vector.vectors import Vectors, as_items

BITS = (4, 8)
DEFAULT_BITS = 8
# The number of training vectors per codeword.
SAMPLES_PER_CODEWORD = 256


def code_shape(options: CodeOptions, dim: int, element: np.dtype[Any]) -> CodeShape:
    codebook = _given_codebook(options, dim, element)
    if codebook is not None:
        subs, bits = codebook.shape[0], codebook.shape[1].bit_length() - 1
        return CodeShape(subs * bits // 8, subs, bits, codebook=codebook)
    bits = options.num_bits or DEFAULT_BITS
    subs = options.num_sub_vectors or _default_sub_vectors(dim, bits)
    check_shape(dim, subs, bits)
    return CodeShape(subs * bits // 8, subs, bits, SAMPLES_PER_CODEWORD << bits, trains_on_vectors=True)


def check_shape(dim: int, num_sub_vectors: int, num_bits: int) -> None:
    """Raises InvalidArgument, a ValueError, for an impossible shape."""
    if num_bits not in BITS:
        raise InvalidArgument(f"PQ codes have 4 or 8 bits, not {num_bits}")
    if num_sub_vectors < 1 or dim % num_sub_vectors:
        raise InvalidArgument(
            f"vectors of {dim} dimensions cannot be cut into {num_sub_vectors} equal sub-vectors",
            "Choose num_sub_vectors so that it divides the dimension",
        )
    if num_bits == 4 and num_sub_vectors % 2:
        raise InvalidArgument(f"4-bit PQ needs an even number of sub-vectors, not {num_sub_vectors}")


def _default_sub_vectors(dim: int, bits: int) -> int:
    """Sub-vectors of 16 dimensions as in pylance, or of fewer if 16 does not divide the dimension."""
    for width in (16, 8, 4, 2, 1):
        if dim % width == 0 and (bits == 8 or dim // width % 2 == 0):
            return dim // width
    raise InvalidArgument(f"4-bit PQ cannot cut {dim} dimensions into an even number of sub-vectors", "Use 8 bits")


def _given_codebook(options: CodeOptions, dim: int, element: np.dtype[Any]) -> Vectors | None:
    if options.pq_codebook is None:
        return None
    codebook = as_items(options.pq_codebook, "pq_codebook", element)
    subs, bits = options.num_sub_vectors, options.num_bits
    if codebook.ndim == 2 and subs and codebook.size % (subs * dim) == 0:
        # One row per codeword of each sub-space, as in an Arrow array of codewords.
        codebook = codebook.reshape(subs, -1, dim // subs)
    if codebook.ndim != 3 or codebook.shape[0] * codebook.shape[2] != dim or codebook.shape[1] not in (16, 256):
        raise InvalidArgument(
            f"pq_codebook has the shape {codebook.shape}", "Pass [num_sub_vectors, 2^num_bits, width] floats"
        )
    check_shape(dim, codebook.shape[0], codebook.shape[1].bit_length() - 1)
    if subs not in (None, codebook.shape[0]) or (bits is not None and 1 << bits != codebook.shape[1]):
        raise InvalidArgument(f"a pq_codebook of shape {codebook.shape} contradicts num_sub_vectors or num_bits")
    return codebook
