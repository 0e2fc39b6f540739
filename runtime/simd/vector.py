"""Vectors of 16 lanes for Numba kernels: arithmetic, comparisons, select, gather; each lane rounds as a scalar.

`F32`, `I32` and `MASK` of `simd_types` are Numba types over LLVM's generic vectors, so that any CPU runs them and a
wide one keeps them in registers. A plain number next to a vector fills all lanes. Branches become `select`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from llvmlite import ir

from ..jit.isa import VECTOR_LANES
from ..jit.numba_lazy import arrays, cgutils, declaring, emitted, intrinsic, intrinsic_of_literals, types

LANES = VECTOR_LANES


def _types() -> ModuleType:
    from . import types as simd_types

    return simd_types


kinds = declaring(_types)
"""`simd_types`, which imports Numba."""


def _address(context: Any, builder: Any, sig: Any, args: Any, pointee: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), pointee.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """Sixteen neighbours of a flat float32, int32, uint16, uint8 or int8 array from element `index`."""
    kind = kinds.F32 if array.dtype == types.float32 else kinds.I32
    narrow = None if array.dtype in kinds.SCALAR_TYPES else ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_address(context, builder, sig, args, narrow or kinds.llvm(kind)))
        value.align = array.dtype.bitwidth // 8
        if narrow is None:
            return value
        return (builder.sext if array.dtype.signed else builder.zext)(value, kinds.llvm(kinds.I32))

    return kind(array, types.intp), lower


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write sixteen neighbours from element `index`; integers into an array of uint8 or uint16 keep their lowest
    bits."""
    narrow = array.dtype in (types.uint8, types.uint16)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.trunc(args[2], ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)) if narrow else args[2]
        builder.store(value, _address(context, builder, sig, args, value.type), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), lower


@intrinsic_of_literals
def stack_array(typing: Any, dtype: Any, vectors: Any) -> Any:
    """A stack array of `vectors` * 16 elements, freed when the function returns; `vectors` is constant."""
    if not isinstance(vectors, types.IntegerLiteral):
        return None
    count = vectors.literal_value * LANES
    kind = types.Array(dtype.dtype, 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = context.get_data_type(kind.dtype)
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(element, count))
        place.align = 64
        array = context.make_array(kind)(context, builder)
        sizes = [ir.Constant(ir.IntType(64), each) for each in (count, context.get_abi_sizeof(element))]
        data = builder.bitcast(place, element.as_pointer())
        arrays.populate_array(array, data=data, shape=sizes[:1], strides=sizes[1:], itemsize=sizes[1], meminfo=None)
        return array._getvalue()

    return kind(dtype, vectors), lower


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """The address of an array's elements."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(context.make_array(sig.args[0])(context, builder, args[0]).data, ir.IntType(64))

    return types.int64(array), lower


@intrinsic
def gather(typing: Any, array: Any, indices: Any) -> Any:
    """Elements of a flat float32 or int32 array, one per lane."""
    kind = {types.float32: kinds.F32, types.int32: kinds.I32}[array.dtype]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        result = ir.Constant(kinds.llvm(kind), ir.Undefined)
        for lane in range(LANES):
            at = ir.Constant(ir.IntType(32), lane)
            element = builder.load(
                builder.gep(data, [builder.sext(builder.extract_element(args[1], at), ir.IntType(64))])
            )
            result = builder.insert_element(result, element, at)
        return result

    return kind(array, indices), lower


@intrinsic
def select(typing: Any, mask: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes where `mask` is set, else `no`; with a scalar mask, one of two scalars."""
    kind = yes if isinstance(yes, kinds.Vector) else no if isinstance(no, kinds.Vector) else typing.unify_types(yes, no)
    if mask == kinds.MASK and not isinstance(kind, kinds.Vector):
        kind = kinds.I32 if isinstance(kind, types.Integer) else kinds.F32

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(args[0], args[1], args[2])

    return kind(mask, kind, kind), lower


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """A float32 or int32 scalar in all lanes."""
    kind = kinds.F32 if isinstance(value, types.Float) else kinds.I32
    return kind(kind), lambda context, builder, sig, args: args[0]


@emitted(lambda: kinds.I32())
def lane_indices(build: Any) -> Any:
    """The lane indices 0 to 15."""
    return ir.Constant(kinds.llvm(kinds.I32), list(range(LANES)))


@intrinsic
def lane_min(typing: Any, vector: Any) -> Any:
    """The minimum of all lanes."""
    name, kind = {kinds.F32: ("fmin", "f32"), kinds.I32: ("smin", "i32")}[vector]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        signature = ir.FunctionType(args[0].type.element, [args[0].type])
        reduce = cgutils.get_or_insert_function(builder.module, signature, f"llvm.vector.reduce.{name}.v{LANES}{kind}")
        return builder.call(reduce, args)

    return vector.element(vector), lower


@emitted(lambda: kinds.F32(kinds.F32))
def sqrt(build: Any, vector: Any) -> Any:
    """The rounded square root of each lane."""
    return kinds.call(build, f"llvm.sqrt.v{LANES}f32", vector)


@intrinsic
def bits(typing: Any, value: Any) -> Any:
    """The bit pattern of float32 as int32."""
    kind, target = (
        (kinds.F32, ir.VectorType(ir.IntType(32), LANES))
        if isinstance(value, kinds.Vector)
        else (types.float32, ir.IntType(32))
    )
    return (kinds.I32 if kind == kinds.F32 else types.int32)(kind), lambda context, builder, sig, args: builder.bitcast(
        args[0], target
    )


@intrinsic
def from_bits(typing: Any, value: Any) -> Any:
    """The float32 with that int32 bit pattern."""
    kind, target = (
        (kinds.I32, ir.VectorType(ir.FloatType(), LANES))
        if isinstance(value, kinds.Vector)
        else (types.int32, ir.FloatType())
    )
    return (kinds.F32 if kind == kinds.I32 else types.float32)(
        kind
    ), lambda context, builder, sig, args: builder.bitcast(args[0], target)


@emitted(lambda: kinds.F32(kinds.I32))
def to_float(build: Any, vector: Any) -> Any:
    """Integers as float32, rounded to nearest even."""
    return build.sitofp(vector, kinds.llvm(kinds.F32))


@emitted(lambda: kinds.I32(kinds.F32))
def to_int(build: Any, vector: Any) -> Any:
    """Float32 in the range of int32 as integers, cut towards zero; anything outside gives any value."""
    return build.fptosi(vector, kinds.llvm(kinds.I32))


@emitted(lambda: kinds.MASK())
def no_lane(build: Any) -> Any:
    """A mask that is set nowhere."""
    return ir.Constant(kinds.llvm(kinds.MASK), [0] * LANES)


@intrinsic
def any_lane(typing: Any, mask: Any) -> Any:
    """Whether any lane is set."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.bitcast(args[0], ir.IntType(LANES))
        return builder.icmp_unsigned("!=", word, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(mask), lower


@intrinsic
def lane_bits(typing: Any, mask: Any) -> Any:
    """A mask as an integer, lane 0 in its lowest bit."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], ir.IntType(LANES)), ir.IntType(64))

    return types.int64(mask), lower


@emitted(lambda: types.int64(types.int64))
def lowest_bit(build: Any, value: Any) -> Any:
    """The index of the lowest set bit of a nonzero integer."""
    return build.cttz(value, ir.Constant(ir.IntType(1), 1))
