"""Partitions of vectors of bits: faiss counts the bits that differ. Distances are whole numbers, and exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.vector.bits import hamming_distances
from pennon.index.vector.quantizers.base import ScorerBase
from pennon.index.vector.search.list_scanner import keys_of
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Codes, Floats, Mask, Positions


@dataclass(frozen=True, eq=False)
class HammingScorer(ScorerBase):
    """Rows and queries are padded to whole words (`bits.in_words`)."""

    quantizer: Any
    rows: Codes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def distances(self, queries: npt.NDArray[Any]) -> Floats:
        return hamming_distances(queries, self.rows)

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> HammingScorer:
        return HammingScorer(self.quantizer, self.rows.take(positions, axis=0))

    def joined(self, others: Sequence[HammingScorer]) -> HammingScorer:
        return HammingScorer(self.quantizer, np.concatenate([self.rows, *(other.rows for other in others)]))


def scan_bits(
    query: npt.NDArray[Any], probed: Sequence[HammingScorer], k: int, allowed: Mask | None
) -> tuple[Floats, Positions]:
    """As `Scans.scan`."""
    distances = np.concatenate([scorer.distances(query) for scorer in probed], axis=1)
    if allowed is not None:
        distances[:, ~allowed] = np.inf
    values, numbers = (found[0] for found in smallest(distances, k))
    numbers[np.isinf(values)] = -1
    return values, keys_of(numbers, [len(scorer) for scorer in probed])
