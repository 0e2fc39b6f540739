"""Vectors of 16 bytes by address: loads that widen them to 32-bit integers, stores that keep the lowest bits, whole or for some lanes."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from ...runtime.compiler import cgutils, intrinsic, types
from ...runtime.compiler import simd_types as kinds
from ...runtime.simd import LANES

_BYTES, _WORDS, _BITS = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8, 32, 1))
_ALIGN = ir.Constant(ir.IntType(32), 1)


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.bitcast(builder.trunc(lanes, ir.IntType(LANES)), _BITS)


def _some(builder: Any, address: Any, lanes: Any) -> Any:
    kind = ir.FunctionType(_BYTES, [_BYTES.as_pointer(), ir.IntType(32), _BITS, _BYTES])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LANES}i8.p0")
    return builder.call(function, [builder.inttoptr(address, _BYTES.as_pointer()), _ALIGN, _mask(builder, lanes), ir.Constant(_BYTES, [0] * LANES)])


@intrinsic
def load_unsigned(typing: Any, address: Any, lanes: Any) -> Any:
    """Those of sixteen u8 whose bits are set in the low 16 of `lanes`, zeros for others, which are not touched."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(_some(builder, *args), _WORDS)

    return kinds.I32(types.int64, types.int64), lower


@intrinsic
def load_signed(typing: Any, address: Any, lanes: Any) -> Any:
    """The same of i8."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.sext(_some(builder, *args), _WORDS)

    return kinds.I32(types.int64, types.int64), lower


@intrinsic
def store_bytes(typing: Any, address: Any, vector: Any, lanes: Any) -> Any:
    """Write the lowest bytes of the lanes whose bits are set in the low 16 of `lanes`."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, _BYTES.as_pointer(), ir.IntType(32), _BITS])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}i8.p0")
        place = builder.inttoptr(args[0], _BYTES.as_pointer())
        builder.call(function, [builder.trunc(args[1], _BYTES), place, _ALIGN, _mask(builder, args[2])])
        return context.get_dummy_value()

    return types.void(types.int64, kinds.I32, types.int64), lower
