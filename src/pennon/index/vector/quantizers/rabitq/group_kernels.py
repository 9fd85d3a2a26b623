"""Sixteen queries at once against partitions of RaBitQ codes.

The items of the queries, rounded to 16-bit integers, are side by side: a table has the sums that each four signs of a
row select, of all sixteen queries in one load. With the errors of rounding, and for codes of more bits those that are
stored with the signs of rows, the sums are lower bounds. Only rows that may be among the nearest of a query are
measured, by all bits and the query's own items, so that distances do not depend on this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.types import Tuple, float32, int16, int64, none, void
from numba.types import bool_ as boolean

from pennon.index.arrays import Flags, Float32s, Int, Int16s, Int64s
from pennon.index.compiled import GIVEN_FLAGS, GIVEN_I64, compiled, given
from pennon.index.memory import address_of, float32_at, int64_at, uint8_at, uint16_at
from pennon.index.vector.quantizers.rabitq.kernels import ANY_ORDER, replace_worst
from pennon.index.vector.search.list_scanner import POSITION_BITS
from pennon.index.vector.vectors import Floats

LANES = 16
# Items of a table: the signs of one look-up, and the sums that they select. A word has 16 times four signs.
SIGNS, SUMS = 4, 16
WORD_BYTES, WORD_ITEMS = 8, 64
TABLE_BYTES = SUMS * LANES * 2
# The largest sum of rounded items.
LARGEST = 32_000
# The part of a sum that floats may lose.
ROUNDING = np.float32(1e-5)
# Rows of the numbers of lanes that `_lanes_near` reads. The first two are what a sum in steps lacks to be at least, and
# at most, the product with signs.
LEAST, MOST, STEP, SLOPE, SHIFT, ERRORS = range(6)
# Numbers of a query: what sums of rounded items lack to be products with signs, the step of rounding, what is lost by
# it, and what sums lack to be products with numbers.
OF_SIGNS, IN_STEPS, LOST, OF_NUMBERS = range(4)

_WIDE = ir.IntType(64)
_INTEGERS = ir.VectorType(ir.IntType(16), LANES)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)


def tables_for(queries: int, dim: int, *, signs_only: bool) -> tuple[Int16s, Floats, Floats]:
    """What `prepare_queries` fills in."""
    padded = -(-dim // WORD_ITEMS) * WORD_ITEMS
    sums = np.zeros((queries, padded // SIGNS * SUMS if signs_only else 0), dtype=np.float32)
    return np.zeros((queries, padded), dtype=np.int16), np.empty((queries, 4), dtype=np.float32), sums


@intrinsic
def _lanes_near(
    _: Any, table: Any, signs: Any, stride: Any, words: Any, lanes: Any, add: Any, scale: Any, error: Any
) -> Any:
    """The lanes for which a row may be among the nearest, a bit for each. `signs` is the address of its first word, the
    next ones follow after `stride` bytes."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        table, signs, stride, words, lanes, add, scale, error = arguments
        count = WORD_ITEMS // SIGNS
        total = cgutils.alloca_once(builder, _INTEGERS)
        builder.store(ir.Constant(_INTEGERS, [0] * LANES), total)
        with cgutils.for_range(builder, words) as loop:
            place = builder.add(signs, builder.mul(loop.index, stride))
            word = builder.load(builder.inttoptr(place, _WIDE.as_pointer()))
            first = builder.add(table, builder.mul(loop.index, _WIDE(count * TABLE_BYTES)))
            sums = builder.load(total)
            for number in range(count):
                # Four bits of the word, times the bytes of a sum of all lanes.
                shift = SIGNS * number - (LANES * 2).bit_length() + 1
                moved = builder.lshr(word, _WIDE(shift)) if shift >= 0 else builder.shl(word, _WIDE(-shift))
                offset = builder.and_(moved, _WIDE((SUMS - 1) * LANES * 2))
                at = builder.add(builder.add(first, _WIDE(number * TABLE_BYTES)), offset)
                sums = builder.add(sums, builder.load(builder.inttoptr(at, _INTEGERS.as_pointer()), align=2))
            builder.store(sums, total)
        numbers = builder.inttoptr(lanes, _FLOATS.as_pointer())

        def lane_numbers(row: Any) -> Any:
            return builder.load(builder.gep(numbers, [row]), align=4)

        def all_lanes(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, ir.IntType(32)(0))
            return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

        step, slope, shift, errors = (lane_numbers(_WIDE(row)) for row in (STEP, SLOPE, SHIFT, ERRORS))
        falling = builder.fcmp_ordered("<", scale, ir.Constant(ir.FloatType(), 0.0))
        base = lane_numbers(builder.select(falling, _WIDE(MOST), _WIDE(LEAST)))
        product = builder.fadd(base, builder.fmul(step, builder.sitofp(builder.load(total), _FLOATS)))
        lowest = builder.fadd(shift, builder.fmul(slope, all_lanes(add)))
        lowest = builder.fadd(lowest, builder.fmul(product, all_lanes(scale)))
        lowest = builder.fsub(lowest, builder.fmul(errors, all_lanes(error)))
        near = builder.fcmp_ordered("<=", lowest, ir.Constant(_FLOATS, [0.0] * LANES))
        return builder.zext(builder.bitcast(near, ir.IntType(LANES)), _WIDE)

    return int64(int64, int64, int64, int64, int64, float32, float32, float32), generate


@intrinsic
def _lowest_bit(_: Any, word: Any) -> Any:
    """The number of the lowest bit that is set."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return int64(int64), generate


@intrinsic
def _put_items(_: Any, target: Any, sources: Any, start: Any) -> Any:
    """Puts items `start` to `start` + 15 of the points of all lanes side by side. `sources` is where the addresses of
    the points are."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        target, sources, start = arguments
        places = builder.inttoptr(sources, _WIDE.as_pointer())

        def load(lane: int) -> Any:
            items = builder.inttoptr(builder.load(builder.gep(places, [_WIDE(lane)])), ir.IntType(16).as_pointer())
            return builder.load(builder.bitcast(builder.gep(items, [start]), _INTEGERS.as_pointer()), align=2)

        def in_turns(first: Any, second: Any, at: int) -> Any:
            order = [place for item in range(at, at + LANES // 2) for place in (item, LANES + item)]
            return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))

        rows = [load(lane) for lane in range(LANES)]
        # Items of rows i and i + 8 in turns, four times over, transpose 16 rows of 16.
        for _ in range(LANES.bit_length() - 1):
            pairs = [(rows[i], rows[i + LANES // 2]) for i in range(LANES // 2)]
            rows = [in_turns(*pair, at) for pair in pairs for at in (0, LANES // 2)]
        made = builder.inttoptr(target, _INTEGERS.as_pointer())
        for number, row in enumerate(rows):
            builder.store(row, builder.gep(made, [builder.add(start, _WIDE(number))]), align=2)
        return context.get_dummy_value()

    return void(int64, int64, int64), generate


@intrinsic
def _put_sums(_: Any, items: Any, target: Any) -> Any:
    """The sums of all subsets of four items of all lanes, both by address."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        given, made = (builder.inttoptr(address, _INTEGERS.as_pointer()) for address in arguments)
        rows = [builder.load(builder.gep(given, [_WIDE(item)]), align=2) for item in range(SIGNS)]
        sums: list[Any] = [ir.Constant(_INTEGERS, [0] * LANES)]
        for row in rows:
            sums += [builder.add(each, row) for each in sums]
        for number, each in enumerate(sums):
            builder.store(each, builder.gep(made, [_WIDE(number)]), align=2)
        return context.get_dummy_value()

    return void(int64, int64), generate


@compiled(Tuple((float32, float32, float32))(int64, int64, int16[::1]))
def _rounded(point: Int, dim: Int, items: Int16s) -> tuple[np.float32, np.float32, np.float32]:
    """Puts the items of a point, in steps, into `items`: the step, and by how much a sum of items differs at least and
    at most from that of the rounded ones."""
    above, below = 0.0, 0.0
    for item in range(dim):
        value = np.float64(float32_at(point, item))
        above, below = above + max(value, 0.0), below + max(-value, 0.0)
    step = max(above, below) / (LARGEST - dim)
    if not 1e-30 < step < 1e30:
        # Of zeros, or not finite: then no distance is, either.
        items[:] = 0
        return np.float32(0), np.float32(-below), np.float32(above)
    least, most = 0.0, 0.0
    for item in range(dim):
        value = np.float64(float32_at(point, item)) / step
        nearest = np.rint(value)
        items[item] = np.int16(nearest)
        least, most = least + min(value - nearest, 0.0), most + max(value - nearest, 0.0)
    return np.float32(step), np.float32(least * step), np.float32(most * step)


@compiled(Tuple((float32, float32, float32))(int64, int64, int64, boolean), fastmath=ANY_ORDER, raising=False)
def _place(query: Int, centroid: Int, dim: Int, by_l2: bool) -> tuple[np.float32, np.float32, np.float32]:
    """The slope and the shift of a query in a partition, and the length that errors grow with, as `Estimator.rotate`
    has them."""
    apart, product, squared = np.float32(0), np.float32(0), np.float32(0)
    if by_l2:
        for item in range(dim):
            difference = float32_at(query, item) - float32_at(centroid, item)
            apart += difference * difference
        return np.float32(1), apart, np.sqrt(apart)
    for item in range(dim):
        product += float32_at(query, item) * float32_at(centroid, item)
        squared += float32_at(centroid, item) * float32_at(centroid, item)
    slope = product / squared if squared > 0 else np.float32(0)
    for item in range(dim):
        difference = float32_at(query, item) - slope * float32_at(centroid, item)
        apart += difference * difference
    return slope, np.float32(np.float32(1) - product - slope), np.sqrt(apart)


@compiled(float32(int64, int64, int64, int64), fastmath=ANY_ORDER)
def _product(code: Int, width: Int, point: Int, dim: Int) -> np.float32:
    """Of a point with a row of numbers of `width` bytes."""
    product = np.float32(0)
    if width == 1:
        for item in range(dim):
            product += np.float32(uint8_at(code, item)) * float32_at(point, item)
    else:
        for item in range(dim):
            product += np.float32(uint16_at(code, item)) * float32_at(point, item)
    return product


@compiled(float32(int64, int64, int64, int64))
def _sum(signs: Int, stride: Int, words: Int, table: Int) -> np.float32:
    """Of the items of a point that the signs of a row select, from the sums of each four. Four sums in turns, so that
    one need not wait for the other; compilers would gather items instead, which is slower."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for word in range(words):
        bits, at = int64_at(signs + word * stride, 0), word * (WORD_ITEMS // SIGNS) * SUMS
        for _ in range(0, WORD_ITEMS // SIGNS, 4):
            a += float32_at(table, at + (bits & 15))
            b += float32_at(table, at + SUMS + (bits >> 4 & 15))
            c += float32_at(table, at + 2 * SUMS + (bits >> 8 & 15))
            d += float32_at(table, at + 3 * SUMS + (bits >> 12 & 15))
            bits >>= 16
            at += 4 * SUMS
    return np.float32((a + b) + (c + d))


@compiled(void(int64, int64, float32[::1]))
def _float_sums(point: Int, dim: Int, table: Float32s) -> None:
    """The sums of all subsets of each four items of a point."""
    for first in range(0, dim, SIGNS):
        at = first * SUMS // SIGNS
        table[at] = 0
        for item in range(SIGNS):
            for number in range(1 << item):
                table[at + (1 << item) + number] = table[at + number] + float32_at(point, first + item)


@compiled(
    none(given(float32, 2), boolean, float32, int16[:, ::1], float32[:, ::1], float32[:, ::1]), fastmath=ANY_ORDER
)
def prepare_queries(
    queries: Floats, signs_only: bool, middle: np.float32, rounded: Any, numbers: Any, sums: Any
) -> None:
    """Fills in, for each query, its rotated items in steps, what `scan_groups` needs of it, and if `signs_only` the
    sums of each four items."""
    dim = queries.shape[1] // 2
    for query in range(len(queries)):
        point = address_of(queries) + (query * 2 + 1) * dim * 4
        step, least, most = _rounded(point, dim, rounded[query])
        total, largest = np.float32(0), np.float32(0)
        for item in range(dim):
            total += float32_at(point, item)
            largest += abs(float32_at(point, item))
        numbers[query, OF_SIGNS] = (least + most) / np.float32(2) - total / np.float32(2)
        numbers[query, IN_STEPS] = step
        numbers[query, LOST] = (most - least) / np.float32(2) + ROUNDING * largest
        numbers[query, OF_NUMBERS] = total * middle
        if signs_only:
            _float_sums(point, dim, sums[query])


@compiled(
    none(
        given(float32, 2),
        given(int16, 2),
        given(float32, 2),
        given(float32, 2),
        given(float32, 2),
        GIVEN_I64,
        GIVEN_I64,
        given(int64, 2),
        GIVEN_I64,
        int64,
        GIVEN_FLAGS,
        boolean,
        float32,
        float32[:, ::1],
        int64[:, ::1],
    ),
    fastmath=ANY_ORDER,
)
def scan_groups(
    queries: Floats,
    rounded: Any,
    numbers: Floats,
    sums: Floats,
    centroids: Floats,
    visits: Int64s,
    asking: Int64s,
    lists: Any,
    starts: Int64s,
    width: Int,
    allowed: Flags,
    by_l2: bool,
    margin: np.float32,
    values: Any,
    keys: Any,
) -> None:
    """Offers the rows of list i to the queries asking[visits[i] : visits[i + 1]], and keeps the nearest.

    A query is its vector followed by the rotated one; `prepare_queries` made the next three. `lists` has the addresses
    of the words of signs, of their factors, of codes and of their factors; the rows of list i are starts[i] to
    starts[i + 1] of `allowed`, which if it is empty allows all. Codes are numbers of `width` bytes, or for 0 the signs
    alone. `margin` times its error a row may be nearer than its signs are."""
    dim, size = centroids.shape[1], rounded.shape[1] // SIGNS * SUMS
    padded, words = rounded.shape[1], rounded.shape[1] // WORD_ITEMS
    items, table = np.empty(padded * LANES, np.int16), np.empty(size * LANES, np.int16)
    sources = np.empty(LANES, np.int64)
    lanes, places = np.empty((ERRORS + 1, LANES), np.float32), np.empty((LANES, 2), np.float32)
    for place in range(len(starts) - 1):
        if visits[place] == visits[place + 1]:
            continue
        rows = starts[place + 1] - starts[place]
        signs, sign_factors, codes, factors = lists[place, 0], lists[place, 1], lists[place, 2], lists[place, 3]
        centroid = address_of(centroids) + place * dim * 4
        largest = np.float32(0)
        for row in range(rows):
            largest = max(largest, abs(float32_at(sign_factors, row)))
        for start in range(visits[place], visits[place + 1], LANES):
            group = min(LANES, visits[place + 1] - start)
            for lane in range(group):
                query = asking[start + lane]
                slope, shift, length = _place(address_of(queries) + query * 2 * dim * 4, centroid, dim, by_l2)
                lost = ROUNDING * (abs(shift) + abs(slope) * largest)
                places[lane, 0], places[lane, 1] = shift, lost
                lanes[LEAST, lane] = numbers[query, OF_SIGNS] - numbers[query, LOST]
                lanes[MOST, lane] = numbers[query, OF_SIGNS] + numbers[query, LOST]
                lanes[STEP, lane], lanes[SLOPE, lane] = numbers[query, IN_STEPS], slope
                lanes[SHIFT, lane], lanes[ERRORS, lane] = shift - values[query, 0] - lost, margin * length
                sources[lane] = address_of(rounded) + query * padded * 2
            for lane in range(group, LANES):
                sources[lane] = sources[0]
                for row in range(ERRORS + 1):
                    lanes[row, lane] = 0
                # Never near in a lane without a query.
                lanes[SHIFT, lane] = np.inf
            for item in range(0, padded, LANES):
                _put_items(address_of(items), address_of(sources), item)
            for item in range(0, padded, SIGNS):
                at = item // SIGNS * TABLE_BYTES
                _put_sums(address_of(items) + item * LANES * 2, address_of(table) + at)
            for row in range(rows):
                if len(allowed) and not allowed[starts[place] + row]:
                    continue
                near = _lanes_near(
                    address_of(table),
                    signs + row * WORD_BYTES,
                    rows * WORD_BYTES,
                    words,
                    address_of(lanes),
                    float32_at(sign_factors, row),
                    float32_at(sign_factors, rows + row),
                    float32_at(sign_factors, 2 * rows + row),
                )
                while near != 0:
                    lane = _lowest_bit(near)
                    near &= near - 1
                    query = asking[start + lane]
                    if width == 0:
                        product = _sum(
                            signs + row * WORD_BYTES, rows * WORD_BYTES, words, address_of(sums) + query * size * 4
                        )
                    else:
                        point = address_of(queries) + (query * 2 + 1) * dim * 4
                        product = _product(codes + row * dim * width, width, point, dim)
                    added, shift = float32_at(factors, row) * lanes[SLOPE, lane], places[lane, 0]
                    distance = (product - numbers[query, OF_NUMBERS]) * float32_at(factors, rows + row) + added + shift
                    if distance < values[query, 0]:
                        replace_worst(values[query], keys[query], distance, (place << POSITION_BITS) + row)
                        lanes[SHIFT, lane] = shift - values[query, 0] - places[lane, 1]
    # Arrays whose addresses are used must outlive them.
    items[0] = table[0] = sources[0] = 0
    lanes[0, 0] = 0
