"""BM25 as pylance computes it, in 32-bit floats: k1 1.2, b 0.75.

    score = sum over terms of idf * (k1 + 1) * f / (f + norm),  norm = k1 * (1 - b + b * length / average)
    idf = ln((N - df + 0.5) / (df + 0.5) + 1)

N, df and the average length are of all partitions of all segments of an index, so that neither their number nor their
sizes change a score. Documents deleted after the build count until their segment is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pennon.index.arrays import Float32s, UInt32s
from pennon.index.inverted.postings.encode_kernels import inverse_frequency

_K1, _B = np.float32(1.2), np.float32(0.75)


@dataclass(frozen=True)
class Statistics:
    """What a score needs in addition to posting and document: the number of documents, and of all their tokens."""

    num_docs: int
    total_tokens: int

    @property
    def average(self) -> np.float32:
        """Tokens of a document."""
        return np.float32(np.float32(self.total_tokens) / np.float32(max(self.num_docs, 1)))

    @classmethod
    def summed(cls, parts: Iterable[Statistics]) -> Statistics:
        """Of several partitions together."""
        found = list(parts)
        return cls(sum(part.num_docs for part in found), sum(part.total_tokens for part in found))

    def weight(self, doc_frequency: int) -> np.float32:
        """What a term counts for that is in some of the documents, at a saturation of 1."""
        idf = np.float32(inverse_frequency(self.num_docs, doc_frequency))
        return np.float32(idf * np.float32(_K1 + np.float32(1)))

    def norms(self, lengths: UInt32s) -> Float32s:
        """What is added to the frequency in documents of the given lengths."""
        return self.norms_for(lengths.astype(np.float32), self.average)

    @staticmethod
    def norms_for(lengths: Float32s, average: np.float32) -> Float32s:
        """The same for lengths that are not whole, and their average."""
        return _K1 * ((np.float32(1) - _B) + _B * lengths / average)
