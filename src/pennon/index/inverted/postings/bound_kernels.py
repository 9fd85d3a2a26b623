"""Whether impacts bound what they are for: a block whose bound is too low is skipped, and its documents with it."""

from __future__ import annotations

import numpy as np
from numba.types import boolean, float32

from pennon.index.arrays import Bytes, Int64s, UInt32s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, GIVEN_U32, compiled
from pennon.index.inverted.postings.decode_kernels import read_impacts
from pennon.index.inverted.postings.encode_kernels import BLOCK, saturation


@compiled(boolean(GIVEN_I64, GIVEN_U32, GIVEN_U32, GIVEN_U32, GIVEN_I64, GIVEN_U8, GIVEN_I64, float32))
def bounds_hold(
    ends: Int64s,
    docs: UInt32s,
    freqs: UInt32s,
    lengths: UInt32s,
    impact_terms: Int64s,
    impact_data: Bytes,
    impact_ends: Int64s,
    average: np.float32,
) -> bool:
    """Of all blocks of some terms: the last document is the one that the impacts name, and no posting counts for more
    than their bound."""
    for term in range(len(ends) - 1):
        start, end = ends[term], ends[term + 1]
        blocks = (end - start + BLOCK - 1) // BLOCK
        lasts, bounds = np.empty(blocks, np.int64), np.empty(blocks, np.float32)
        entries = impact_ends[impact_terms[term] : impact_terms[term + 1] + 1]
        if not read_impacts(impact_data, entries, len(lengths), average, lasts, bounds):
            return False
        for block in range(blocks):
            first, last = start + block * BLOCK, min(start + (block + 1) * BLOCK, end)
            if np.int64(docs[last - 1]) != lasts[block]:
                return False
            for at in range(first, last):
                length = np.float32(lengths[docs[at]])
                if saturation(np.float32(freqs[at]), length, average) > bounds[block]:
                    return False
    return True
