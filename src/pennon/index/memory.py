"""Arrays in kernels by their address: numba counts references to arrays that are passed on or sliced, which in the
inner loops of a search takes as long as the work itself. numba frees an array after its last use in a function; the use
of its address does not count, so an array must be used after it, too.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numba.types import float32, int8, int64, uint8, uint16, uint32, uint64, void, voidptr


@intrinsic
def pointer(_: Any, address: Any) -> Any:
    """An address as `carray` takes it."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return voidptr(address), generate


@intrinsic
def address_of(_: Any, array: Any) -> Any:
    """Where the items of an array are, which must outlive the use of the address."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        data = make_array(array)(context, builder, arguments[0]).data
        return builder.ptrtoint(data, cgutils.intp_t)

    return int64(array), generate


def _loading(item: Any) -> Any:
    @intrinsic
    def load(_: Any, address: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            items = builder.inttoptr(arguments[0], context.get_data_type(item).as_pointer())
            return builder.load(builder.gep(items, [arguments[1]]))

        return item(int64, int64), generate

    return load


def _storing(item: Any) -> Any:
    @intrinsic
    def store(_: Any, address: Any, place: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            items = builder.inttoptr(arguments[0], context.get_data_type(item).as_pointer())
            builder.store(arguments[2], builder.gep(items, [arguments[1]]))

        return void(int64, int64, item), generate

    return store


@intrinsic
def big_endian_at(_: Any, address: Any, place: Any) -> Any:
    """The eight bytes from a place on as a number, the first of them the highest. They need not be aligned."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        at = builder.inttoptr(builder.add(arguments[0], arguments[1]), ir.IntType(64).as_pointer())
        return builder.bswap(builder.load(at, align=1))

    return uint64(int64, int64), generate


@intrinsic
def word_from(_: Any, address: Any) -> Any:
    """The eight bytes at an address, which need not be aligned."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), align=1)

    return uint64(int64), generate


@intrinsic
def put_word(_: Any, address: Any, word: Any) -> Any:
    """Write eight bytes to an address, which need not be aligned."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), align=1)

    return void(int64, uint64), generate


@intrinsic
def fetch_ahead(_: Any, address: Any) -> Any:
    """Have the bytes at an address brought to the processor's caches. Any address will do."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        item, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, item, item, item])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # For reading, to all levels, data.
        builder.call(function, [builder.inttoptr(arguments[0], pointer), item(0), item(3), item(1)])

    return void(int64), generate


# An item of the array at an address, by its place.
uint8_at, uint16_at, uint32_at = _loading(uint8), _loading(uint16), _loading(uint32)
int8_at, int64_at, float32_at = _loading(int8), _loading(int64), _loading(float32)

put_uint32, put_int64 = _storing(uint32), _storing(int64)


@intrinsic
def unpack_row(_: Any, low: Any, high: Any, target: Any, shift: Any, width: Any) -> Any:
    """Write four numbers of `width` bits, 1 to 32, to `target`. They start `shift` bits into the words at `low` and go
    on in those at `high`; one instruction works on all four."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        item = ir.IntType(32)
        four = ir.VectorType(item, 4)

        def splat(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(four, ir.Undefined), value, item(0))
            return builder.shuffle_vector(first, ir.Constant(four, ir.Undefined), ir.Constant(four, [0] * 4))

        def load(address: Any) -> Any:
            return builder.load(builder.inttoptr(address, four.as_pointer()), align=1)

        shift, width = (builder.trunc(value, item) for value in arguments[3:])
        # In two steps: no instruction shifts by 32.
        above = builder.shl(load(arguments[1]), splat(builder.sub(item(31), shift)))
        above = builder.shl(above, ir.Constant(four, [1] * 4))
        both = builder.or_(builder.lshr(load(arguments[0]), splat(shift)), above)
        mask = builder.lshr(item(-1), builder.sub(item(32), width))
        builder.store(builder.and_(both, splat(mask)), builder.inttoptr(arguments[2], four.as_pointer()), align=4)

    return void(int64, int64, int64, int64, int64), generate
