"""Sums of four products in each word of a vector, unsigned bytes by signed ones, with the instructions that there are; exact by all of them.

AVX2 multiplies bytes only with sums that saturate at 16 bits, so bytes are widened: those at even places of a word and those at odd ones make pairs
of 16 bits, whose products one instruction adds. Elsewhere products, which fit into 16 bits, are widened after they are made.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ...runtime.compiler import cgutils
from ...runtime.paths import INTEGERS

LANES = 16
WORDS = ir.VectorType(ir.IntType(32), LANES)
HALF = LANES // 2
_SHORTS, _HALF_WORDS = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(ir.IntType(32), HALF)
PATH = INTEGERS.taken()


def dot(builder: Any, path: str, sums: Any, columns: Any, spread: Any) -> Any:
    """Sixteen words of sums, each with the products of four unsigned bytes of `columns` and four signed ones of `spread`.

    Args:
        path: a row of `INTEGERS`, which the processor has.
    """
    return WAYS[path](builder, sums, columns, spread)


def _whole(builder: Any, sums: Any, columns: Any, spread: Any) -> Any:
    return _call(builder, "llvm.x86.avx512.vpdpbusd.512", sums.type, sums, columns, spread)


def _halves(builder: Any, sums: Any, columns: Any, spread: Any) -> Any:
    made = []
    for half in range(2):
        lanes = ir.Constant(_HALF_WORDS, list(range(half * HALF, half * HALF + HALF)))
        parts = [builder.shuffle_vector(item, item, lanes) for item in (sums, columns, spread)]
        made.append(_call(builder, "llvm.x86.avx512.vpdpbusd.256", _HALF_WORDS, *parts))
    return _joined(builder, *made)


def _pairs(builder: Any, sums: Any, columns: Any, spread: Any) -> Any:
    for one, other in zip(_unsigned(builder, columns), _signed(builder, spread), strict=True):
        made = []
        for half in range(2):
            lanes = ir.Constant(WORDS, list(range(half * LANES, half * LANES + LANES)))
            parts = [builder.shuffle_vector(item, item, lanes) for item in (one, other)]
            made.append(_call(builder, "llvm.x86.avx2.pmadd.wd", _HALF_WORDS, *parts))
        sums = builder.add(sums, _joined(builder, *made))
    return sums


def _plain(builder: Any, sums: Any, columns: Any, spread: Any) -> Any:
    bits = ir.Constant(WORDS, [16] * LANES)
    for one, other in zip(_unsigned(builder, columns), _signed(builder, spread), strict=True):
        product = builder.bitcast(builder.mul(one, other), WORDS)
        sums = builder.add(sums, builder.add(builder.ashr(product, bits), builder.ashr(builder.shl(product, bits), bits)))
    return sums


WAYS = {"VNNI": _whole, "AVX-VNNI": _halves, "16-bit pairs": _pairs, "16-bit products": _plain}


def _unsigned(builder: Any, words: Any) -> tuple[Any, Any]:
    """Bytes at even and at odd places, as pairs of 16 bits."""
    pairs = builder.bitcast(words, _SHORTS)
    return builder.and_(pairs, ir.Constant(_SHORTS, [255] * 2 * LANES)), builder.lshr(pairs, ir.Constant(_SHORTS, [8] * 2 * LANES))


def _signed(builder: Any, words: Any) -> tuple[Any, Any]:
    pairs, bits = builder.bitcast(words, _SHORTS), ir.Constant(_SHORTS, [8] * 2 * LANES)
    return builder.ashr(builder.shl(pairs, bits), bits), builder.ashr(pairs, bits)


def _joined(builder: Any, low: Any, high: Any) -> Any:
    return builder.shuffle_vector(low, high, ir.Constant(WORDS, list(range(LANES))))


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
