"""Quantized KV caches on the device (int8, int4, float8): new rows are encoded, all rows are decoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .....runtime.cuda.element.small_dtypes import SMALL
from .....runtime.cuda.kernel.elementwise import chain_step, elementwise_launch
from .....runtime.cuda.kernel.kernel import Launch
from .....runtime.cuda.kernel.operand import Lookup, Operand
from .....runtime.cuda.plan.kernel_api import Step
from .....runtime.plan.kernel_api import Buffer
from ....attention.attention_cuda import in_heads
from ....attention.flash_cuda import Heads
from ....elementwise.unary import _round as to_even
from ....quantized.quantized_cuda import saturated

LARGEST = 448.0
"""Largest magnitude of f8 floats in a cache."""
F32, INT64 = np.dtype(np.float32), np.dtype(np.int64)


def _whole(x: float, scale: float, low: float, high: float, zero: float) -> float:
    return saturated(to_even(x / scale), low, high) + zero


def _bounded(x: float, scale: float, largest: float) -> float:
    number = x / scale
    return -largest if number < -largest else largest if number > largest else number


def _pair(one: float, scale: float, other: float, other_scale: float) -> float:
    return _whole(one, scale, -8, 7, 8) + 16 * _whole(other, other_scale, -8, 7, 8)


def _number(code: float, scale: float, zero: float) -> float:
    return (code - zero) * scale


def _nibble(codes: int, place: int) -> int:
    return (codes >> (4 * place)) & 15


@dataclass(frozen=True)
class Coding:
    """Codec of a quantized KV cache on the device.

    Attributes:
        strides: elements of the scale along heads and along a head.
    """

    scale: Buffer
    strides: tuple[int, int]
    bits: int

    def _along(self, start: int = 0, each: int = 1) -> Operand:
        heads, along = self.strides
        return Operand(self.scale, (0, heads, 0, each * along), start * along)

    def written(self, new: Heads, made: Buffer, lookup: Lookup) -> Launch:
        """New rows coded where they belong."""
        target = Operand(made, (made.strides[0], made.strides[1], 0, 1), lookups=(lookup,))
        if self.bits == 4:
            box = (*new.shape[:3], new.shape[3] // 2)
            halves = [
                Operand(new.buffer, (*new.strides[:3], 2 * new.strides[3]), place * new.strides[3]) for place in (0, 1)
            ]
            operands = [halves[0], self._along(0, 2), halves[1], self._along(1, 2)]
            return elementwise_launch(
                [chain_step(_pair, [item.buffer for item in operands], made.dtype, compute=F32)], box, operands, target
            )
        operands = [new.operand, self._along()]
        zero = 128.0 if made.dtype == np.uint8 else 0.0
        function, numbers = (_bounded, (LARGEST,)) if made.dtype.name in SMALL else (_whole, (-128.0, 127.0, zero))
        apply = chain_step(function, [item.buffer for item in operands], made.dtype, *numbers, compute=F32)
        return elementwise_launch([apply], new.shape, operands, target)

    def read(self, step: Step, made: Buffer, new: Heads) -> tuple[Heads, Launch]:
        """All rows as numbers."""
        n, groups, rows, stored = made.shape
        size = new.shape[3]
        found = step.temporary(new.buffer.dtype, (n, groups, rows, size))
        zero = 8.0 if self.bits == 4 else 128.0 if made.dtype == np.uint8 else 0.0
        last = chain_step(_number, (made, self.scale), found.dtype, zero, compute=F32)
        if self.bits != 4:
            return in_heads(found, None), elementwise_launch(
                [last], found.shape, [Operand(made, made.strides), self._along()], in_heads(found, None).operand
            )
        places = step.constant_buffer(np.arange(2))
        heads, along = self.strides
        operands = [
            Operand(made, (*made.strides, 0)),
            Operand(places, (0, 0, 0, 0, 1)),
            Operand(self.scale, (0, heads, 0, 2 * along, along)),
        ]
        steps = [
            chain_step(_nibble, (made, places), INT64, compute=INT64),
            chain_step(_number, (None, self.scale), found.dtype, zero, compute=F32),
        ]
        target = Operand(found, (*found.strides[:3], 2, 1))
        return in_heads(found, None), elementwise_launch(steps, (n, groups, rows, stored, 2), operands, target)


def coding(step: Step, past: Buffer | None, scale: Buffer | None, kind: str, size: int) -> Coding | str | None:
    """The codec of a cache; None for plain floats, the reason for a cache that runs on the CPU."""
    if past is None or scale is None or kind in ("", "NONE"):
        plain = past is None or past.dtype.kind == "f" or past.dtype.name in ("bfloat16", *SMALL)
        return None if plain else "caches without a scale are supported on the CPU only"
    bits = step.attributes["kv_cache_bit_width"] or 8
    known = past.dtype in (np.int8, np.uint8) or (past.dtype.name in SMALL and bits == 8)
    if (
        kind not in ("PER_TENSOR", "PER_CHANNEL")
        or not known
        or bits not in (4, 8)
        or (bits == 4 and (past.dtype != np.uint8 or size % 2))
    ):
        return "this cache format is supported on the CPU only"
    if past.shape[3] * (2 if bits == 4 else 1) != size:
        return "unsupported cache shape"
    if scale.count == 1:
        return Coding(scale, (0, 0), bits)
    heads, rows, along = (1, 1, 1, *scale.shape)[-3:]
    if scale.count != heads * along or rows != 1 or heads not in (1, past.shape[1]) or along not in (1, size):
        return "unsupported shape of the cache scales"
    return Coding(scale, (0 if heads == 1 else along, 0 if along == 1 else 1), bits)
