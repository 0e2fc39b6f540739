"""Array views over raw addresses in kernels, and loads that widen f16 to f32."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..jit.isa import features
from ..jit.numba_lazy import arrays, intrinsic, types
from ..jit.range_kernel import inlined
from .vector import LANES, bits, from_bits, kinds, load, select

_WORD = ir.IntType(64)


@intrinsic
def flat(typing: Any, dtype: Any, address: Any, count: Any) -> Any:
    """A flat array view of `count` elements at an address."""
    kind = types.Array(dtype.dtype, 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = context.get_data_type(kind.dtype)
        array = context.make_array(kind)(context, builder)
        data, itemsize = (
            builder.inttoptr(args[1], element.as_pointer()),
            ir.Constant(_WORD, context.get_abi_sizeof(element)),
        )
        arrays.populate_array(array, data=data, shape=[args[2]], strides=[itemsize], itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return kind(dtype, types.int64, types.int64), lower


@intrinsic
def _converted(typing: Any, patterns: Any, index: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.HalfType(), LANES)
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        value = builder.load(builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer()))
        value.align = 2
        return builder.fpext(value, ir.VectorType(ir.FloatType(), LANES))

    return kinds.F32(patterns, types.intp), lower


@inlined
def load_f16_exact(patterns: Any, index: Any) -> Any:
    """As `load_f16`; NaN keeps its payload."""
    pattern = load(patterns, index)
    magnitude = (pattern & 0x7FFF) << 13
    scaled = bits(from_bits(magnitude) * 2.0**112)
    return from_bits(select(magnitude >= 0x0F800000, magnitude | 0x7F800000, scaled) | ((pattern & 0x8000) << 16))


load_f16 = _converted if "f16c" in features() else load_f16_exact
"""Load sixteen f16 from index `index` of a flat uint16 array as f32; NaN stays NaN."""
