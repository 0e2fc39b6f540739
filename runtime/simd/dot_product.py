"""Dot-product instructions with 16 accumulators: u8 x s8 (dot4), i16 pairs and bf16 pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .llvm_vector import BF16, I8, I16, I32, LANES, Code, vector_type

INTS = vector_type(I32)
HALF = LANES // 2
PAIR_LIMIT = 32767
"""Largest sum of two products that fits 16 bits."""


def dot4_vnni(code: Code, start: Any, unsigned: Any, signed: Any) -> Any:
    """Sixteen sums of four products, added to `start`: one instruction of AVX-512 VNNI."""
    return code.call("llvm.x86.avx512.vpdpbusd.512", INTS, start, unsigned, signed)


def dot4_avx_vnni(code: Code, start: Any, unsigned: Any, signed: Any) -> Any:
    """The same as two instructions of AVX-VNNI, which has vectors of 32 bytes."""
    return _per_half(
        code, lambda *parts: code.call("llvm.x86.avx512.vpdpbusd.256", parts[0].type, *parts), start, unsigned, signed
    )


def dot2_u8s8(code: Code, unsigned: Any, signed: Any) -> Any:
    """Sums of two products, i16 [32]; they must stay within `PAIR_LIMIT`. Instructions of AVX2."""
    kind = vector_type(I8, 4 * HALF)

    def multiplied(*parts: Any) -> Any:
        return code.call(
            "llvm.x86.avx2.pmadd.ub.sw", vector_type(I16, LANES), *(code.builder.bitcast(part, kind) for part in parts)
        )

    return _per_half(code, multiplied, unsigned, signed)


def dot2_s8(code: Code, left: Any, right: Any) -> Any:
    """The same of two signed factors, the right one above -128."""
    kind = vector_type(I8, 4 * HALF)

    def magnitude(part: Any) -> Any:
        return code.call("llvm.abs.v32i8", kind, part, ir.Constant(ir.IntType(1), 0))

    def with_sign(part: Any, sign: Any) -> Any:
        return code.call("llvm.x86.avx2.psign.b", kind, part, sign)

    return dot2_u8s8(code, _per_half(code, magnitude, left), _per_half(code, with_sign, right, left))


def add_pairs(code: Code, start: Any, sums: Any) -> Any:
    """Sixteen sums of two i16 each, added to `start`. Instructions of AVX2."""
    return code.builder.add(start, _per_half(code, lambda half: half_pairs(code, half), sums))


def half_pairs(code: Code, sums: Any) -> Any:
    """Eight sums of two i16 each."""
    ones = ir.Constant(sums.type, [1] * LANES)
    return code.call("llvm.x86.avx2.pmadd.wd", vector_type(I32, HALF), sums, ones)


def dot2_i16_vnni(code: Code, start: Any, left: Any, right: Any) -> Any:
    """Sixteen sums of two products of i16, added to `start`: one instruction of AVX-512 VNNI."""
    return _call_i16_pairs(code, "llvm.x86.avx512.vpdpwssd.512", start, left, right)


def dot2_i16_avx_vnni(code: Code, start: Any, left: Any, right: Any) -> Any:
    """The same as two instructions of AVX-VNNI."""
    return _per_half(
        code, lambda *parts: _call_i16_pairs(code, "llvm.x86.avx512.vpdpwssd.256", *parts), start, left, right
    )


def dot2_i16_avx2(code: Code, start: Any, left: Any, right: Any) -> Any:
    """The same as four instructions of AVX2."""
    return code.builder.add(
        start, _per_half(code, lambda *parts: _call_i16_pairs(code, "llvm.x86.avx2.pmadd.wd", *parts), left, right)
    )


def dot2_bf16(code: Code, start: Any, left: Any, right: Any) -> Any:
    """Sixteen f32, to each of which two products of bfloat16 are added, the second one first: one instruction of
    AVX512_BF16.

    Sums are rounded to nearest even as by one FMA each; numbers below 2^-126 are taken for zeros and become zeros,
    whatever modes are set.
    Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS; seen to hold on AMD's Zen
    4.
    """
    pair = vector_type(BF16, 2 * LANES)
    held = (code.builder.bitcast(each, pair) for each in (left, right))
    return code.call("llvm.x86.avx512bf16.dpbf16ps.512", start.type, start, *held)


def _call_i16_pairs(code: Code, name: str, *vectors: Any) -> Any:
    """Call an LLVM intrinsic on i32 vectors, the last two reinterpreted as pairs of i16."""
    *start, one, other = vectors
    kind = vector_type(I16, 2 * one.type.count)
    return code.call(name, one.type, *start, *(code.builder.bitcast(each, kind) for each in (one, other)))


def _per_half(code: Code, function: Callable[..., Any], *vectors: Any) -> Any:
    """Apply a function to the lower and the upper halves of vectors, and join the results."""
    build = code.builder

    def half(vector: Any, index: int) -> Any:
        count = vector.type.count // 2
        return build.shuffle_vector(
            vector, vector, ir.Constant(vector_type(I32, count), list(range(count * index, count * (index + 1))))
        )

    low, high = (function(*(half(vector, index) for vector in vectors)) for index in range(2))
    return build.shuffle_vector(
        low, high, ir.Constant(vector_type(I32, 2 * low.type.count), list(range(2 * low.type.count)))
    )
