"""Eight queries side by side in kernels: their tables, rounded down to 16-bit integers, put together so that one load
has a number of all eight."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numba.types import Tuple, float32, float64, int16, int64, void

from pennon.index.arrays import Float32s, Int16s
from pennon.index.compiled import GIVEN_F32, compiled

LANES = 8
# Numbers of a table for each byte of a code.
CODES = 256
# The largest sum of rounded numbers.
LARGEST = 32_000

NUMBERS = ir.VectorType(ir.IntType(16), LANES)


@intrinsic
def interleave(_: Any, target: Any, sources: Any, added: Any, start: Any) -> Any:
    """Put numbers `start` to `start` + 7 of eight arrays side by side, plus those of the array at `added`. `sources`
    is where the addresses of the eight are."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        target, sources, added, start = arguments
        wide = ir.IntType(64)

        def shuffled(first: Any, second: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))

        def load(address: Any) -> Any:
            items = builder.inttoptr(address, ir.IntType(16).as_pointer())
            return builder.load(builder.bitcast(builder.gep(items, [start]), NUMBERS.as_pointer()), align=2)

        places = builder.inttoptr(sources, wide.as_pointer())
        rows = [load(builder.load(builder.gep(places, [wide(lane)]))) for lane in range(LANES)]
        # Numbers of rows i and i + 4 in turns, three times over, transpose eight rows of eight.
        halves = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
        for _ in range(3):
            rows = [shuffled(rows[i], rows[i + 4], half) for i in range(4) for half in halves]
        more, columns = load(added), builder.inttoptr(target, NUMBERS.as_pointer())
        for lane, column in enumerate(rows):
            sums = builder.add(column, shuffled(more, more, [lane] * LANES))
            builder.store(sums, builder.gep(columns, [builder.add(start, wide(lane))]), align=2)
        return context.get_dummy_value()

    return void(int64, int64, int64, int64), generate


@compiled(Tuple((float64, float64, float64))(GIVEN_F32, float32[::1]))
def extent(table: Float32s, lows: Float32s) -> tuple[float, float, float]:
    """The sum of the lowest numbers of all bytes, which are put into `lows`, that of their spans, and that of the
    largest magnitudes."""
    low, span, size = 0.0, 0.0, 0.0
    for byte in range(len(lows)):
        least, most = table[byte * CODES], table[byte * CODES]
        for at in range(byte * CODES, (byte + 1) * CODES):
            least, most = min(least, table[at]), max(most, table[at])
        lows[byte] = least
        low += np.float64(least)
        span += np.float64(most) - np.float64(least)
        size += max(abs(np.float64(least)), abs(np.float64(most)))
    return low, span, size


@compiled(void(GIVEN_F32, GIVEN_F32, float64, int16[::1]))
def round_down(table: Float32s, lows: Float32s, step: float, rounded: Int16s) -> None:
    """Numbers above the lowest of their byte, in steps. Floats may round them up, in total by less than one step."""
    scale = np.float32(1 / step)
    for byte in range(len(lows)):
        low = lows[byte]
        for at in range(byte * CODES, (byte + 1) * CODES):
            rounded[at] = np.int16(np.int32((table[at] - low) * scale))
