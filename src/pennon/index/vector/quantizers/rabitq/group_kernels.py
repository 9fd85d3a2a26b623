"""Eight queries at once against a partition of RaBitQ codes of one bit.

The signs of a row are bytes, and a query has a table with the sum of its items for every byte: the signs are read like
a PQ code, for eight queries at once, from tables rounded down. Only rows that may be among the nearest of a query are
measured again by its own table. Codes of more bits are compared by matrix products: too many of their rows are within
the errors of their signs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.types import bool_ as boolean
from numba.types import float32, int16, int64, none, uint8, uint64

from pennon.index.arrays import Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I64, compiled, given
from pennon.index.memory import address_of
from pennon.index.vector.quantizers.lanes import CODES, LANES, LARGEST, NUMBERS, extent, interleave, round_down
from pennon.index.vector.quantizers.rabitq.kernels import ANY_ORDER, replace_worst
from pennon.index.vector.vectors import Codes, Floats, Mask, Words

WORD_BYTES = 8
# The part of a sum that floats may lose.
ROUNDING = np.float32(1e-5)
# Rows of the numbers of lanes that `_lanes_near` reads.
MIDDLE, STEP, SLOPE, SHIFT, SLACK = range(5)

_FLOATS = ir.VectorType(ir.FloatType(), LANES)


@intrinsic
def _lanes_near(_: Any, table: Any, signs: Any, stride: Any, words: Any, lanes: Any, add: Any, scale: Any) -> Any:
    """The lanes for which a row may be among the nearest, a bit for each. `signs` is the address of its first word, the
    next ones follow after `stride` bytes."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        table, signs, stride, words, lanes, add, scale = arguments
        wide = ir.IntType(64)
        total = cgutils.alloca_once(builder, NUMBERS)
        builder.store(ir.Constant(NUMBERS, [0] * LANES), total)
        rows = builder.inttoptr(table, NUMBERS.as_pointer())
        with cgutils.for_range(builder, words) as loop:
            place = builder.add(signs, builder.mul(loop.index, stride))
            word = builder.load(builder.inttoptr(place, wide.as_pointer()))
            first, sums = builder.mul(loop.index, wide(WORD_BYTES * CODES)), builder.load(total)
            for number in range(WORD_BYTES):
                byte = builder.and_(builder.lshr(word, wide(8 * number)), wide(CODES - 1))
                at = builder.add(builder.add(first, wide(number * CODES)), byte)
                sums = builder.add(sums, builder.load(builder.gep(rows, [at]), align=2))
            builder.store(sums, total)
        numbers = builder.inttoptr(lanes, _FLOATS.as_pointer())
        middle, step, slope, shift, slack = (
            builder.load(builder.gep(numbers, [wide(row)]), align=4) for row in range(SLACK + 1)
        )

        def all_lanes(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, ir.IntType(32)(0))
            return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

        size = builder.call(builder.module.declare_intrinsic("llvm.fabs", [ir.FloatType()]), [scale])
        product = builder.fadd(middle, builder.fmul(step, builder.sitofp(builder.load(total), _FLOATS)))
        found = builder.fadd(builder.fmul(product, all_lanes(scale)), builder.fmul(slope, all_lanes(add)))
        lowest = builder.fsub(builder.fadd(found, shift), builder.fmul(all_lanes(size), slack))
        near = builder.fcmp_ordered("<=", lowest, ir.Constant(_FLOATS, [0.0] * LANES))
        return builder.zext(builder.bitcast(near, ir.IntType(LANES)), wide)

    return int64(int64, int64, int64, int64, int64, float32, float32), generate


@compiled(none(given(float32, 2), float32[::1], float32[::1], int16[:, ::1]))
def round_tables(tables: Any, lows: Float32s, steps: Float32s, rounded: Any) -> None:
    """The tables of queries rounded down, each in its own steps above the sum of its lowest numbers."""
    queries, size = tables.shape
    lowest = np.empty(size // CODES, np.float32)
    for query in range(queries):
        low, span, _ = extent(tables[query], lowest)
        step = max(span / LARGEST, 1e-30)
        round_down(tables[query], lowest, step, rounded[query])
        lows[query], steps[query] = np.float32(low), np.float32(step)


@compiled(
    none(
        given(uint64, 2),
        given(float32, 2),
        given(uint8, 2),
        given(boolean),
        int64,
        given(float32, 2),
        GIVEN_F32,
        GIVEN_F32,
        GIVEN_F32,
        given(int16, 2),
        GIVEN_I64,
        given(float32, 2),
        float32[:, ::1],
        int64[:, ::1],
    ),
    fastmath=ANY_ORDER,
)
def scan_partition(
    signs: Words,
    factors: Floats,
    codes: Codes,
    allowed: Mask,
    first: Int,
    tables: Any,
    halves: Float32s,
    lows: Float32s,
    steps: Float32s,
    rounded: Any,
    asking: Int64s,
    places: Any,
    values: Any,
    keys: Any,
) -> None:
    """Offers the rows of a partition to the queries of `asking`; `places` has the slope and the shift of each. Keys
    count from `first`; an empty `allowed` allows all. `halves` are half the sums of the items of queries; `signs` has
    the bytes of `codes` as columns of words."""
    rows, size, width = signs.shape[1], tables.shape[1], codes.shape[1]
    table, nothing = np.empty(size * LANES, np.int16), np.zeros(size, np.int16)
    sources, lanes = np.empty(LANES, np.int64), np.empty((SLACK + 1, LANES), np.float32)
    # What rounding down takes from the numbers of all bytes: on average half a step each.
    lost = np.float32(size // CODES) / np.float32(2)
    for start in range(0, len(asking), LANES):
        count = min(LANES, len(asking) - start)
        for lane in range(LANES):
            at = start + min(lane, count - 1)
            query = asking[at]
            sources[lane] = address_of(rounded) + query * size * 2
            lanes[MIDDLE, lane] = lows[query] + (lost * steps[query] - halves[query])
            lanes[STEP, lane] = steps[query]
            lanes[SLOPE, lane] = places[at, 0]
            # Never near in a lane without a query.
            lanes[SHIFT, lane] = places[at, 1] - values[query, 0] if lane < count else np.float32(np.inf)
            most = abs(lows[query]) + abs(halves[query]) + np.float32(LARGEST) * steps[query]
            lanes[SLACK, lane] = (lost + np.float32(1)) * steps[query] + ROUNDING * most
        for at in range(0, size, LANES):
            interleave(address_of(table), address_of(sources), address_of(nothing), at)
        for row in range(rows):
            add, scale, word = factors[0, row], factors[1, row], address_of(signs) + row * WORD_BYTES
            near = _lanes_near(address_of(table), word, rows * WORD_BYTES, len(signs), address_of(lanes), add, scale)
            if near == 0 or not (len(allowed) == 0 or allowed[row]):
                continue
            for lane in range(count):
                if near >> lane & 1:
                    query, slope, shift = asking[start + lane], places[start + lane, 0], places[start + lane, 1]
                    product = np.float32(0)
                    for item in range(width):
                        product += tables[query, item * CODES + np.int64(codes[row, item])]
                    distance = (product - halves[query]) * scale + add * slope + shift
                    if distance < values[query, 0]:
                        replace_worst(values[query], keys[query], distance, first + row)
                        lanes[SHIFT, lane] = shift - values[query, 0]
    # Arrays whose addresses are used must outlive them.
    table[0] = nothing[0] = 0
    sources[0], lanes[0, 0] = 0, 0
