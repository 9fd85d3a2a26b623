"""The lowest of the scores of every row, which are products of rows and columns, without writing them anywhere.

A tile is `ROWS` rows and `COLUMNS` columns, whose sums stay in the processor's registers: each number that is loaded is
used many times. When a tile is done, every lane keeps the lowest of its sums and the number of that column. Columns are
in panels of a tile's width, item after item, and the last panel is filled up with columns that are never the lowest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic
from numba.types import Tuple, float32, int32, int64, none, void

from pennon.index.arrays import Float32s, Int, Int32s, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I64, MADE_F32, MADE_I64, compiled, given
from pennon.index.memory import address_of
from pennon.index.vector.vectors import Floats

_FEATURES = get_host_cpu_features().split(",")
# Floats of a register, and registers of a row of a tile. With the columns and one number of a row, 6 rows take as many
# registers as there are: 32 with AVX-512, 16 without.
LANES, WIDTH = (16, 4) if "+avx512f" in _FEATURES else (8, 2) if "+avx" in _FEATURES else (4, 2)
ROWS, COLUMNS = 6, LANES * WIDTH
# Numbers of the rows that are compared with one panel after another, so that they stay in a cache.
BLOCK_ITEMS = 24_576

SUMS = frozenset({"reassoc", "contract", "nsz"})
# A product that is added at once is rounded once.
_ADDED = ("contract",)
_WORD, _HALF, _FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
_FLOATS, _NUMBERS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_HALF, LANES)


def _all_lanes(builder: Any, value: Any, kind: ir.VectorType) -> Any:
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _HALF(0))
    return builder.shuffle_vector(first, first, ir.Constant(_NUMBERS, [0] * LANES))


@intrinsic
def _compare_tile(
    _: Any, rows: Any, stride: Any, panel: Any, terms: Any, items: Any, lowest: Any, numbers: Any, first: Any
) -> Any:
    """Offers the columns of a panel, the first of which has the number `first`, to the lanes of the rows, by address.
    Rows are `stride` items apart."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        rows, stride, panel, terms, items, lowest, numbers, first = arguments
        floats, columns = _FLOAT.as_pointer(), _FLOATS.as_pointer()
        starts = [builder.inttoptr(rows, floats)]
        while len(starts) < ROWS:
            starts.append(builder.gep(starts[-1], [stride]))
        panel, terms, lowest = (builder.inttoptr(address, columns) for address in (panel, terms, lowest))
        numbers = builder.inttoptr(numbers, _NUMBERS.as_pointer())
        sums = [[cgutils.alloca_once(builder, _FLOATS) for _ in range(WIDTH)] for _ in range(ROWS)]
        for place in range(WIDTH):
            term = builder.load(builder.gep(terms, [_WORD(place)]), align=4)
            for row in range(ROWS):
                builder.store(term, sums[row][place])
        with cgutils.for_range(builder, items) as loop:
            at = builder.mul(loop.index, _WORD(WIDTH))
            column = [
                builder.load(builder.gep(panel, [builder.add(at, _WORD(place))]), align=4) for place in range(WIDTH)
            ]
            for row in range(ROWS):
                item = _all_lanes(builder, builder.load(builder.gep(starts[row], [loop.index]), align=4), _FLOATS)
                for place in range(WIDTH):
                    product = builder.fmul(item, column[place], flags=_ADDED)
                    total = builder.fadd(builder.load(sums[row][place]), product, flags=_ADDED)
                    builder.store(total, sums[row][place])
        start = builder.trunc(first, _HALF)
        for row in range(ROWS):
            values, ids = (builder.gep(base, [_WORD(row)]) for base in (lowest, numbers))
            best, number = builder.load(values, align=4), builder.load(ids, align=4)
            for place in range(WIDTH):
                total = builder.load(sums[row][place])
                own = builder.add(
                    _all_lanes(builder, builder.add(start, _HALF(place * LANES)), _NUMBERS),
                    ir.Constant(_NUMBERS, list(range(LANES))),
                )
                lower = builder.fcmp_ordered("<", total, best)
                best, number = builder.select(lower, total, best), builder.select(lower, own, number)
            builder.store(best, values, align=4)
            builder.store(number, ids, align=4)
        return context.get_dummy_value()

    return void(int64, int64, int64, int64, int64, int64, int64, int64), generate


@intrinsic
def _lowest_lane(_: Any, lowest: Any, numbers: Any) -> Any:
    """The lowest value of a row's lanes, by address, and the lowest number of a lane that has it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = builder.load(builder.inttoptr(arguments[0], _FLOATS.as_pointer()), align=4)
        numbers = builder.load(builder.inttoptr(arguments[1], _NUMBERS.as_pointer()), align=4)
        half = LANES // 2
        best, number = values, numbers
        while half:
            turn = ir.Constant(_NUMBERS, [(lane + half) % LANES for lane in range(LANES)])
            other, its = builder.shuffle_vector(best, best, turn), builder.shuffle_vector(number, number, turn)
            equal = builder.and_(builder.fcmp_ordered("==", other, best), builder.icmp_unsigned("<", its, number))
            better = builder.or_(builder.fcmp_ordered("<", other, best), equal)
            best, number = builder.select(better, other, best), builder.select(better, its, number)
            half //= 2
        value = builder.extract_element(best, _HALF(0))
        found = builder.zext(builder.extract_element(number, _HALF(0)), _WORD)
        return context.make_tuple(builder, signature.return_type, (value, found))

    return Tuple((float32, int64))(int64, int64), generate


@compiled(inline=True)
def _compare_block(
    block: Float32s,
    rows: Int,
    panels: Any,
    terms: Float32s,
    first: Int,
    end: Int,
    lowest: Float32s,
    numbers: Int32s,
) -> None:
    """Leaves in the lanes of the rows of a block their lowest scores and the numbers of those columns, which are in the
    panels from `first` to `end`."""
    items, tiles = panels.shape[1], (rows + ROWS - 1) // ROWS
    lowest[: tiles * ROWS * LANES] = np.inf
    numbers[: tiles * ROWS * LANES] = 0
    for panel in range(first, end):
        for tile in range(tiles):
            _compare_tile(
                address_of(block) + tile * ROWS * items * 4,
                items,
                address_of(panels) + panel * items * COLUMNS * 4,
                address_of(terms) + panel * COLUMNS * 4,
                items,
                address_of(lowest) + tile * ROWS * LANES * 4,
                address_of(numbers) + tile * ROWS * LANES * 4,
                panel * COLUMNS,
            )


@compiled(
    none(given(float32, 2), int64, int64, int64, GIVEN_F32, given(float32, 3), GIVEN_F32, MADE_I64, MADE_F32, MADE_F32),
    fastmath=SUMS,
)
def lowest_scores(
    points: Floats,
    first_item: Int,
    start: Int,
    stop: Int,
    middle: Float32s,
    panels: Any,
    terms: Float32s,
    ids: Int64s,
    scores: Float32s,
    lengths: Float32s,
) -> None:
    """For the rows `start` to `stop` of `points`, from the item `first_item` on and relative to `middle`: the number of
    the column with the lowest score, which is the term of the column plus the product; that score; and the squared
    length of the row. A row without a score below infinity gets column 0."""
    items = panels.shape[1]
    most = max(1, BLOCK_ITEMS // max(1, items) // ROWS) * ROWS
    block = np.zeros(most * items, np.float32)
    lowest, numbers = np.empty(most * LANES, np.float32), np.empty(most * LANES, np.int32)
    for begin in range(start, stop, most):
        rows = min(most, stop - begin)
        for row in range(rows):
            length = np.float32(0)
            for item in range(items):
                number = points[begin + row, first_item + item] - middle[item]
                block[row * items + item] = number
                length += number * number
            lengths[begin + row] = length
        _compare_block(block, rows, panels, terms, 0, len(panels), lowest, numbers)
        for row in range(rows):
            score, number_ = _lowest_lane(address_of(lowest) + row * LANES * 4, address_of(numbers) + row * LANES * 4)
            scores[begin + row], ids[begin + row] = score, number_
    # Arrays whose addresses are used must outlive them.
    block[:1] = 0
    lowest[:1] = 0
    numbers[:1] = 0


@compiled(
    none(
        given(float32, 2),
        GIVEN_I64,
        GIVEN_I64,
        given(float32, 3),
        GIVEN_F32,
        GIVEN_I64,
        GIVEN_I64,
        float32[:, ::1],
        int32[:, ::1],
    ),
    fastmath=SUMS,
)
def lowest_of_groups(
    points: Floats,
    starts: Int64s,
    rows: Int64s,
    panels: Any,
    terms: Float32s,
    first_panels: Int64s,
    members: Int64s,
    best: Float32s,
    ids: Int32s,
) -> None:
    """Compares the rows rows[starts[g]:starts[g + 1]] with the columns of group g, which are in the panels from
    first_panels[g] to first_panels[g + 1] and have the ids `members`. The lowest score is added to those of the row,
    ascending, with its id."""
    items, last = panels.shape[1], best.shape[1] - 1
    most = max(1, BLOCK_ITEMS // max(1, items) // ROWS) * ROWS
    block = np.zeros(most * items, np.float32)
    lowest, numbers = np.empty(most * LANES, np.float32), np.empty(most * LANES, np.int32)
    for group in range(len(starts) - 1):
        for begin in range(starts[group], starts[group + 1], most):
            count = min(most, starts[group + 1] - begin)
            for line in range(count):
                row = rows[begin + line]
                for item in range(items):
                    block[line * items + item] = points[row, item]
            _compare_block(block, count, panels, terms, first_panels[group], first_panels[group + 1], lowest, numbers)
            for line in range(count):
                score, number = _lowest_lane(
                    address_of(lowest) + line * LANES * 4, address_of(numbers) + line * LANES * 4
                )
                row = rows[begin + line]
                if not score < best[row, last]:
                    continue
                at = last
                while at > 0 and best[row, at - 1] > score:
                    best[row, at], ids[row, at] = best[row, at - 1], ids[row, at - 1]
                    at -= 1
                best[row, at], ids[row, at] = score, members[number]
    # Arrays whose addresses are used must outlive them.
    block[:1] = 0
    lowest[:1] = 0
    numbers[:1] = 0
