"""Memory inside compiled kernels: arrays over what lies at an address, and half precision widened to float32."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from .compiler import arrays, intrinsic, types
from .compiler import simd_types as kinds
from .kernel import inlined
from .paths import features
from .simd import LANES, bits, from_bits, load, select

_WORD = ir.IntType(64)


@intrinsic
def flat(typing: Any, dtype: Any, address: Any, count: Any) -> Any:
    """A flat array of `count` elements over the memory at an address; it owns nothing."""
    kind = types.Array(dtype.dtype, 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = context.get_data_type(kind.dtype)
        array = context.make_array(kind)(context, builder)
        data, itemsize = builder.inttoptr(args[1], element.as_pointer()), ir.Constant(_WORD, context.get_abi_sizeof(element))
        arrays.populate_array(array, data=data, shape=[args[2]], strides=[itemsize], itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return kind(dtype, types.int64, types.int64), lower


@intrinsic
def _converted(typing: Any, halves: Any, index: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.HalfType(), LANES)
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        value = builder.load(builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer()))
        value.align = 2
        return builder.fpext(value, ir.VectorType(ir.FloatType(), LANES))

    return kinds.F32(halves, types.intp), lower


@inlined
def exact_half(halves: Any, index: Any) -> Any:
    """As `load_half`; NaN keeps its payload."""
    pattern = load(halves, index)
    magnitude = (pattern & 0x7FFF) << 13
    scaled = bits(from_bits(magnitude) * 2.0**112)
    return from_bits(select(magnitude >= 0x0F800000, magnitude | 0x7F800000, scaled) | ((pattern & 0x8000) << 16))


load_half = _converted if "f16c" in features() else exact_half
"""Sixteen numbers of half precision, a flat uint16 array's elements from `index`, as float32; NaN stays NaN."""
