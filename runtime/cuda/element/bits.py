"""Bit casts, f16 and bf16 conversion, and dp4a, on the device and in its simulator.

NVVM compiles an f16 conversion to one instruction; the simulator uses NumPy.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ..device.device import SIMULATED

if SIMULATED:

    def bits(x: Any) -> Any:
        """The bits of a float32 as an int32."""
        return np.float32(x).view(np.int32)

    def from_bits(pattern: Any) -> Any:
        """The float32 with these bits."""
        return np.int32(pattern).view(np.float32)

    def half(pattern: Any) -> Any:
        """The float32 value of f16 bits."""
        return np.float32(np.uint16(pattern).view(np.float16))

    def to_half(x: Any) -> Any:
        """The f16 bits of the nearest value."""
        return np.float32(x).astype(np.float16).view(np.uint16)

    def dp4a(one: Any, other: Any, total: Any) -> Any:
        """`total` plus the dot product of four signed bytes each."""
        pairs = zip(
            *(np.array(item, np.int32).reshape(1).view(np.int8).astype(np.int32) for item in (one, other)), strict=True
        )
        return np.int32(total + sum(a * b for a, b in pairs))

    def inlined(function: Any) -> Any:
        """A device function that is inlined into the kernels that call it."""
        return function

else:
    from llvmlite import ir
    from numba.cuda import jit, types
    from numba.cuda.extending import intrinsic

    def inlined(function: Any) -> Any:
        """A device function that is inlined into the kernels that call it."""
        return jit(device=True, inline="always")(function)

    @intrinsic
    def bits(typing: Any, x: Any) -> Any:
        """The bits of a float32 as an int32."""
        return types.int32(types.float32), lambda context, builder, sig, args: builder.bitcast(args[0], ir.IntType(32))

    @intrinsic
    def from_bits(typing: Any, pattern: Any) -> Any:
        """The float32 with these bits."""
        return types.float32(types.int32), lambda context, builder, sig, args: builder.bitcast(args[0], ir.FloatType())

    def _instruction(text: str, constraint: str, result: Any, argument: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(result, [argument])
            return builder.call(ir.InlineAsm(kind, text, constraint), args)

        return lower

    @intrinsic
    def half(typing: Any, pattern: Any) -> Any:
        """The float32 value of f16 bits."""
        return types.float32(types.uint16), _instruction("cvt.f32.f16 $0, $1;", "=f,h", ir.FloatType(), ir.IntType(16))

    @intrinsic
    def to_half(typing: Any, x: Any) -> Any:
        """The f16 bits of the nearest value."""
        return types.uint16(types.float32), _instruction(
            "cvt.rn.f16.f32 $0, $1;", "=h,f", ir.IntType(16), ir.FloatType()
        )

    @intrinsic
    def dp4a(typing: Any, one: Any, other: Any, total: Any) -> Any:
        """`total` plus the dot product of four signed bytes each."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32)] * 3)
            return builder.call(ir.InlineAsm(kind, "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r"), args)

        return types.int32(types.int32, types.int32, types.int32), lower


@inlined
def from_packed(codes: Any, place: int) -> Any:
    """One of four packed signed bytes as a float32."""
    return np.float32((((np.int64(codes) >> np.int64(8 * place)) & np.int64(255)) ^ np.int64(128)) - np.int64(128))


@inlined
def less(codes: Any, zero: int) -> Any:
    """Subtract `zero` from each of four bytes below 128, without borrows between bytes."""
    return np.int32(((codes | np.int64(0x80808080)) - np.int64(0x01010101) * np.int64(zero)) ^ np.int64(0x80808080))


@inlined
def opposed(codes: Any) -> Any:
    """Subtract 128 from each of four bytes."""
    return np.int32(codes ^ np.int64(0x80808080))


@inlined
def from_bf16(pattern: Any) -> Any:
    """The float32 value of bf16 bits."""
    return from_bits(np.int32(np.uint32(pattern) << np.uint32(16)))


@inlined
def to_bf16(x: Any) -> Any:
    """The bf16 bits of the nearest value, ties to even."""
    pattern = np.int64(bits(np.float32(x))) & np.int64(0xFFFFFFFF)
    rounded = (pattern + np.int64(0x7FFF) + ((pattern >> np.int64(16)) & np.int64(1))) >> np.int64(16)
    return (
        np.uint16(rounded & np.int64(0xFFFF))
        if x == x
        else np.uint16(((pattern >> np.int64(16)) & np.int64(0x8000)) | np.int64(0x7FC0))
    )
