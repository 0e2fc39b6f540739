"""dot4 of u8 by s8: exact sums of four products in each i32 lane, with the best instructions available.

AVX2 multiplies bytes only with sums that saturate at 16 bits, so bytes are widened: the even ones of a word and
the odd ones make pairs of 16 bits, whose products one instruction adds. Elsewhere products, which fit into 16
bits, are widened after they are made.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..jit.isa import INTEGERS
from .dot_product import dot2_i16_avx2, dot4_avx_vnni, dot4_vnni
from .llvm_vector import Code

LANES = 16
WORDS = ir.VectorType(ir.IntType(32), LANES)
_SHORTS = ir.VectorType(ir.IntType(16), 2 * LANES)
PATH = INTEGERS.selected()


def dot(code: Code, path: str, sums: Any, columns: Any, spread: Any) -> Any:
    """Sixteen words of sums, each with the products of four unsigned bytes of `columns` and four signed ones of
    `spread`.

    Args:
        path: a row of `INTEGERS`, which the processor has.
    """
    return WAYS[path](code, sums, columns, spread)


def _pairs(code: Code, sums: Any, columns: Any, spread: Any) -> Any:
    for one, other in _widened(code.builder, columns, spread):
        sums = dot2_i16_avx2(code, sums, code.builder.bitcast(one, WORDS), code.builder.bitcast(other, WORDS))
    return sums


def _plain(code: Code, sums: Any, columns: Any, spread: Any) -> Any:
    builder, bits = code.builder, ir.Constant(WORDS, [16] * LANES)
    for one, other in _widened(builder, columns, spread):
        product = builder.bitcast(builder.mul(one, other), WORDS)
        sums = builder.add(
            sums, builder.add(builder.ashr(product, bits), builder.ashr(builder.shl(product, bits), bits))
        )
    return sums


WAYS = {
    "AMX": dot4_vnni,
    "VNNI": dot4_vnni,
    "AVX-VNNI": dot4_avx_vnni,
    "16-bit pairs": _pairs,
    "16-bit products": _plain,
    "emulated": _plain,
}


def _widened(builder: Any, columns: Any, spread: Any) -> list[tuple[Any, Any]]:
    """Bytes of even and of odd lanes, widened to 16 bits: unsigned and signed."""
    unsigned, signed = builder.bitcast(columns, _SHORTS), builder.bitcast(spread, _SHORTS)
    bits = ir.Constant(_SHORTS, [8] * 2 * LANES)
    even = (
        builder.and_(unsigned, ir.Constant(_SHORTS, [255] * 2 * LANES)),
        builder.ashr(builder.shl(signed, bits), bits),
    )
    return [even, (builder.lshr(unsigned, bits), builder.ashr(signed, bits))]
