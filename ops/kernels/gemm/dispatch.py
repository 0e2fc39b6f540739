"""Microkernel dispatch for products with weights: tables of instruction set x kind of storage type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.jit.isa import BF16_ROWS, BLOCKS, F16_ROWS, PROMPTS
from ....runtime.simd.amx import Emulated, Registers
from ....runtime.simd.llvm_vector import Code
from ...quants.llvm import codes
from .gemv import FloatProducts, Products, WeightRows
from .gemv_byte_pairs import PairProducts, SignedPairProducts
from .gemv_int8 import RUN, AvxVnniInt8Products, Int8Products, ThreeDigitProducts, max_pairs
from .panel_16bit import (
    MAX_ACTIVATION,
    Avx2CodePairs,
    Avx2Pairs,
    AvxVnniPairs,
    Bf16Pairs,
    CodePairTile,
    Int16Pairs,
    PairTile,
)
from .panel_amx import AmxBf16Panel, AmxInt8Panel
from .panel_int8 import Avx2Panel, AvxVnniPanel, Int8Panel, Int8Tile


@dataclass(frozen=True)
class GemmVariant:
    """Kernels of products of many rows with weights of a type.

    Attributes:
        tile: of activations, for a type.
        panel: of the weight.
    """

    tile: Callable[[str], Any]
    panel: Callable[[Code, Any, WeightRows, Any], Any]


def _int8(panel: Any, rows: int, rows_of_16: int) -> GemmVariant:
    """Codes times int8; rows of a tile where 32 and where 16 elements share a scale."""
    by_group = {32: rows, 16: rows_of_16}
    return GemmVariant(lambda name: Int8Tile(by_group[codes()[name].group], codes()[name]), panel)


def _int16(panel: Any, rows: int, tile: Any = PairTile, max_magnitude: int = MAX_ACTIVATION) -> GemmVariant:
    """16-bit integers with a step for each run."""
    return GemmVariant(lambda name: tile(rows, max_magnitude=max_magnitude), panel)


def _bf16(panel: Any, rows: int, parts: int = 1) -> GemmVariant:
    """Elements as sums of some bf16."""
    return GemmVariant(lambda name: PairTile(rows, parts), panel)


_BYTES, _BYTES_EMULATED = (_int8(functools.partial(AmxInt8Panel, tiles), 32, 32) for tiles in (Registers, Emulated))
_ONE, _ONE_EMULATED = (_bf16(functools.partial(AmxBf16Panel, tiles), 32) for tiles in (Registers, Emulated))
_TWO, _TWO_EMULATED = (_bf16(functools.partial(AmxBf16Panel, tiles), 32, 2) for tiles in (Registers, Emulated))
_VNNI, _VNNI_16 = _int8(Int8Panel, 6, 4), _int16(Int16Pairs, 6)
_AVX_VNNI, _AVX_VNNI_16 = _int8(AvxVnniPanel, 4, 4), _int16(AvxVnniPairs, 4)
_AVX2, _AVX2_CODES, _AVX2_16 = _int8(Avx2Panel, 4, 4), _int16(Avx2CodePairs, 4, CodePairTile, 127), _int16(Avx2Pairs, 4)
_DOT_BF16 = _bf16(Bf16Pairs, 12)

KINDS = {"codes": PROMPTS, "8-bit codes": PROMPTS, "f16": F16_ROWS, "bf16": BF16_ROWS}
"""Kinds of storage types whose activations may be rounded, and the choice of an instruction set for each."""
GEMM: dict[str, tuple[GemmVariant | None, ...]] = {
    "AMX": (_BYTES, _BYTES, _TWO, _ONE),
    "emulated": (_BYTES_EMULATED, _BYTES_EMULATED, _TWO_EMULATED, _ONE_EMULATED),
    "BF16": (None, None, _DOT_BF16, _DOT_BF16),
    "VNNI": (_VNNI, _VNNI, _VNNI_16, _VNNI_16),
    "AVX-VNNI": (_AVX_VNNI, _AVX_VNNI, _AVX_VNNI_16, _AVX_VNNI_16),
    "16-bit pairs": (_AVX2, _AVX2_CODES, _AVX2_16, _AVX2_16),
}
"""GEMM of rounded activations: instruction set x `KINDS`. ``emulated`` does what AMX does with vectors, for tests."""
GEMV: dict[str, dict[bool, Products]] = {
    "VNNI": {True: Int8Products, False: ThreeDigitProducts},
    "AVX-VNNI": {True: AvxVnniInt8Products, False: FloatProducts},
    "FMA": {True: PairProducts, False: FloatProducts},
    "vectors": dict.fromkeys((True, False), FloatProducts),
}
"""GEMV of codes: instruction set x whether activations are rounded to 8 bits."""


def weight_kind(name: str) -> str | None:
    """The kind of a storage type in `KINDS`, None if its activations are never rounded."""
    if name in codes():
        return "codes" if max_pairs(name) else "8-bit codes"
    return name if name in KINDS else None


def find_variant(name: str, variant: str) -> GemmVariant | None:
    """The microkernel of a variant for a storage type, None if there is none."""
    kind = weight_kind(name)
    if kind is None or variant not in GEMM:
        return None
    found = GEMM[variant][list(KINDS).index(kind)]
    if found is _AVX2_CODES and (codes()[name].minima is not None or codes()[name].group != RUN):
        return None  # its runs have one scale and no minimum
    return found


def gemm_variant(name: str, variant: str) -> GemmVariant:
    """The microkernel of a variant for a storage type."""
    found = find_variant(name, variant)
    assert found is not None, (name, variant)
    return found


def rounding_variant(name: str) -> str | None:
    """The variant for rounded activations on this processor, None if there is none for a storage type."""
    kind = weight_kind(name)
    variant = None if kind is None else KINDS[kind].selected()
    return None if variant is None or find_variant(name, variant) is None else variant


def available(name: str) -> bool:
    """Whether many rows are rounded for a storage type on this processor."""
    return rounding_variant(name) is not None


def gemv_products(name: str, rounded: bool) -> Products:
    """Products of a few rows with a storage type on this processor; `rounded`: to 8 bits."""
    products = GEMV[BLOCKS.selected()][rounded] if name in codes() else FloatProducts
    if products is not PairProducts:
        return products
    return next((each for each in (PairProducts, SignedPairProducts) if each.max_pairs(name)), FloatProducts)
