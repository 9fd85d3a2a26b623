"""The inputs of a quantizer: the user's options, the resulting shape of codes, the training sample; and its details in
the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pennon.index.vector.vectors import Vectors

# The maximum number of vectors that a quantizer is trained on.
TRAINING_ROWS = 256 * 256


@dataclass(frozen=True)
class CodeOptions:
    """The options of an index that shape its codes; None if one is not given, or does not apply to its codes."""

    num_sub_vectors: int | None = None
    num_bits: int | None = None
    pq_codebook: Any = None


@dataclass(frozen=True)
class CodeShape:
    """The shape of codes for valid options, with defaults filled in."""

    row_bytes: int  # of a row in `auxiliary.idx`, without its id
    num_sub_vectors: int | None = None
    num_bits: int | None = None
    sample_rows: int = 0  # rows that a sample needs for training
    trains_on_vectors: bool = False  # else the bounds of the sample are enough
    codebook: Vectors | None = field(default=None, repr=False)  # given, in place of training

    def without_models(self) -> CodeShape:
        return replace(self, codebook=None)


class CodeDetails(NamedTuple):
    """The parameters of codes that the manifest records."""

    num_bits: int | None = None
    num_sub_vectors: int | None = None
    matrix_rotation: bool = False


@dataclass(frozen=True, eq=False)
class Sample:
    """Vectors to train on, and the bounds of all sampled items, possibly of more vectors; 0 and 0 if there are none."""

    vectors: Vectors
    low: float
    high: float
