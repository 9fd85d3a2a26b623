"""Many queries in one call: between two of them no Python runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import float32, int64

from pennon.index.arrays import Flags, Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, GIVEN_I64, compiled
from pennon.index.inverted.search.all_kernels import search_all
from pennon.index.inverted.search.any_kernels import search_any
from pennon.index.inverted.search.cursor_kernels import LISTS


@compiled(
    int64(
        LISTS,
        GIVEN_F32,
        GIVEN_I64,
        GIVEN_FLAGS,
        GIVEN_F32,
        GIVEN_FLAGS,
        int64,
        float32[:, ::1],
        int64[:, ::1],
        int64[:, ::1],
        int64,
        int64,
    )
)
def search_each(
    lists: Any,
    weights: Float32s,
    ends: Int64s,
    every: Flags,
    norms: Float32s,
    allowed: Flags,
    first: Int,
    scores: Any,
    keys: Any,
    counters: Any,
    low: Int,
    high: Int,
) -> Int:
    """Queries [low, high), each as `search_any` or, where `every` demands all terms, as `search_all`. The lists of
    query q are those from `ends[q]` to `ends[q + 1]`. The number of a query that met a damaged list, or -1."""
    nowhere = np.empty(0, np.int64)
    for query in range(low, high):
        a, b = ends[query], ends[query + 1]
        if a == b:
            continue
        best = scores[query], keys[query], counters[query]
        if every[query]:
            valid = search_all(lists[a:b], weights[a:b], norms, allowed, nowhere, nowhere, 0, first, *best)
        else:
            valid = search_any(lists[a:b], weights[a:b], norms, allowed, first, *best)
        if not valid:
            return query
    return -1
