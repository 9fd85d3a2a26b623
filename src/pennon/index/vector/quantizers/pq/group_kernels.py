"""Eight queries at once against a list of PQ codes.

The tables of the queries, rounded down to 16-bit integers, are side by side: one load has what a byte of a code adds to
the distances of all eight, and one instruction adds it. Sums of numbers rounded down are lower bounds; the few rows
that may be among the nearest of a query are measured again by its own table, so that distances do not depend on this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.types import float32, float64, int16, int64, void

from pennon.index.arrays import Flags, Float32s, Int, Int16s, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, GIVEN_I64, compiled, given
from pennon.index.memory import address_of, float32_at, uint8_at
from pennon.index.vector.quantizers.lanes import CODES, LANES, LARGEST, NUMBERS, extent, interleave, round_down
from pennon.index.vector.quantizers.pq.kernels import replace_worst, scan_list

# Fewer queries are compared with a list one by one.
LEAST_QUERIES = 3
# The part of a sum that floats may lose.
ROUNDING = 4e-6


@intrinsic
def _not_above(_: Any, table: Any, code: Any, width: Any, limits: Any) -> Any:
    """The lanes whose sum for a code is not above their limit, a bit for each. The first and the last are addresses."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        table, code, width, limits = arguments
        wide = ir.IntType(64)
        total = cgutils.alloca_once(builder, NUMBERS)
        builder.store(ir.Constant(NUMBERS, [0] * LANES), total)
        codes = builder.inttoptr(code, ir.IntType(8).as_pointer())
        rows = builder.inttoptr(table, NUMBERS.as_pointer())
        with cgutils.for_range(builder, width) as loop:
            byte = builder.zext(builder.load(builder.gep(codes, [loop.index])), wide)
            at = builder.add(builder.mul(loop.index, wide(CODES)), byte)
            row = builder.load(builder.gep(rows, [at]), align=2)
            builder.store(builder.add(builder.load(total), row), total)
        bound = builder.load(builder.inttoptr(limits, NUMBERS.as_pointer()), align=2)
        found = builder.icmp_signed("<=", builder.load(total), bound)
        return builder.zext(builder.bitcast(found, ir.IntType(LANES)), wide)

    return int64(int64, int64, int64, int64), generate


@compiled(float32(int64, int64, int64, int64), inline=True)
def _distance(first: Int, second: Int, code: Int, width: Int) -> np.float32:
    """As in `kernels`, of the sum of two tables."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    whole = width // 4 * 4
    for at in range(0, whole, 4):
        i, j = at * CODES + np.int64(uint8_at(code, at)), (at + 1) * CODES + np.int64(uint8_at(code, at + 1))
        k, m = (at + 2) * CODES + np.int64(uint8_at(code, at + 2)), (at + 3) * CODES + np.int64(uint8_at(code, at + 3))
        a += float32_at(first, i) + float32_at(second, i)
        b += float32_at(first, j) + float32_at(second, j)
        c += float32_at(first, k) + float32_at(second, k)
        d += float32_at(first, m) + float32_at(second, m)
    for at in range(whole, width):
        i = at * CODES + np.int64(uint8_at(code, at))
        a += float32_at(first, i) + float32_at(second, i)
    return np.float32((a + b) + (c + d))


@compiled(int16(float32, float64, float64))
def _limit(worst: np.float32, base: float, step: float) -> np.int16:
    """The largest sum that a row among the nearest may have. Products with floats may round up, in total by less than
    one step."""
    limit = (np.float64(worst) - base) / step + 2.0
    return np.int16(max(-1.0, min(limit, 32767.0)))


@compiled(
    void(
        int64,
        int16[::1],
        GIVEN_I64,
        given(float64),
        float64,
        GIVEN_F32,
        int64,
        int64,
        int64,
        int64,
        int64,
        int64,
        GIVEN_FLAGS,
        float32[:, ::1],
        int64[:, ::1],
    )
)
def _scan(
    table: Int,
    limits: Int16s,
    queries: Int64s,
    bases: Any,
    step: float,
    nearby: Float32s,
    of_queries: Int,
    of_list: Int,
    size: Int,
    codes: Int,
    count: Int,
    start: Int,
    allowed: Flags,
    values: Any,
    found: Any,
) -> None:
    """Compare the rows of a list with a group. `limits` fall with the worst of the nearest; tables and codes are
    addresses."""
    width, bounds = size // CODES, address_of(limits)
    for row in range(count):
        code = codes + row * width
        lanes = _not_above(table, code, width, bounds)
        if lanes == 0 or not (len(allowed) == 0 or allowed[start + row]):
            continue
        for lane in range(len(nearby)):
            if lanes >> lane & 1:
                query = queries[lane]
                sum_ = np.float32(nearby[lane] + _distance(of_queries + query * size * 4, of_list, code, width))
                if sum_ < values[query, 0]:
                    replace_worst(values[query], found[query], sum_, start + row)
                    limits[lane] = _limit(values[query, 0], bases[lane], step)


@compiled(
    void(
        given(float32, 2),
        given(float32, 2),
        GIVEN_I64,
        GIVEN_I64,
        GIVEN_F32,
        GIVEN_I64,
        GIVEN_I64,
        GIVEN_I64,
        GIVEN_FLAGS,
        float32[:, ::1],
        int64[:, ::1],
    )
)
def scan_groups(
    of_queries: Any,
    of_lists: Any,
    visits: Int64s,
    asking: Int64s,
    nearby: Float32s,
    codes: Int64s,
    counts: Int64s,
    starts: Any,
    allowed: Flags,
    values: Any,
    found: Any,
) -> None:
    """Offers the rows of list i to the queries asking[visits[i] : visits[i + 1]], and keeps the smallest sums. A sum is
    of `nearby`, which belongs to `asking`, and of the numbers of the query's and the list's table that a code names;
    `of_lists` may be empty. `codes` are addresses; rows are numbered from `starts`. An empty `allowed` allows all."""
    count, size = of_queries.shape
    width = size // CODES
    plain, lows = len(of_lists) == 0, np.empty(width, np.float32)
    nothing = np.zeros(size, np.float32)
    low_sums, sizes = np.empty(count, np.float64), np.empty(count, np.float64)
    widest, list_span = 0.0, 0.0
    query_lows = np.empty((count, width), np.float32)
    for query in range(count):
        low_sums[query], span, sizes[query] = extent(of_queries[query], query_lows[query])
        widest = max(widest, span)
    for place in range(len(counts)):
        if not plain and visits[place + 1] - visits[place] >= LEAST_QUERIES:
            list_span = max(list_span, extent(of_lists[place], lows)[1])
    step = (widest + list_span) / LARGEST
    # Too small to divide by, or not finite.
    exact = not (1e-30 < step < 1e30)
    rounded = np.empty((count, size), np.int16)
    if not exact:
        for query in range(count):
            round_down(of_queries[query], query_lows[query], step, rounded[query])
    table, of_list = np.empty(size * LANES, np.int16), np.zeros(size, np.int16)
    limits, sources, bases = np.empty(LANES, np.int16), np.empty(LANES, np.int64), np.empty(LANES, np.float64)
    lanes_of = np.empty(LANES, np.int64)
    single = np.empty(size, np.float32)
    for place in range(len(counts)):
        first, end = visits[place], visits[place + 1]
        own = nothing if plain else of_lists[place]
        low, list_size = 0.0, 0.0
        if not exact and not plain and end - first >= LEAST_QUERIES:
            low, _, list_size = extent(own, lows)
            round_down(own, lows, step, of_list)
        while first < end:
            lanes = min(LANES, end - first)
            if exact or lanes < LEAST_QUERIES:
                for at in range(first, first + lanes):
                    query = asking[at]
                    for i in range(size):
                        single[i] = of_queries[query, i] + own[i]
                    scan_list(
                        single,
                        nearby[at],
                        codes[place],
                        counts[place],
                        starts[place],
                        allowed,
                        values[query],
                        found[query],
                    )
                first += lanes
                continue
            for lane in range(LANES):
                query = asking[first + min(lane, lanes - 1)]
                near = np.float64(nearby[first + min(lane, lanes - 1)])
                lanes_of[lane] = query
                sources[lane] = address_of(rounded) + query * size * 2
                bases[lane] = near + low_sums[query] + low - ROUNDING * (abs(near) + sizes[query] + list_size)
                limits[lane] = _limit(values[query, 0], bases[lane], step) if lane < lanes else np.int16(-1)
            for start in range(0, size, LANES):
                interleave(address_of(table), address_of(sources), address_of(of_list), start)
            near_ones, tables = nearby[first : first + lanes], address_of(of_queries)
            held = codes[place], counts[place], starts[place]
            _scan(
                address_of(table),
                limits,
                lanes_of,
                bases,
                step,
                near_ones,
                tables,
                address_of(own),
                size,
                *held,
                allowed,
                values,
                found,
            )
            first += lanes
    # Arrays whose addresses are used must outlive them.
    table[0] = of_list[0] = limits[0] = rounded[0, 0] = 0
    sources[0] = nothing[0] = single[0] = 0
