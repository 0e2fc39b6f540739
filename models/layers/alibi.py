"""ALiBi: attention scores decrease linearly with distance, at a rate per head (Press et al. 2022, arXiv:2108.12409)."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.graph import Value
from .decoder import Decoder

BF16 = 16
"""ONNX's enum value of bfloat16."""


def slopes(heads: int, max_exponent: float = 8.0) -> np.ndarray:
    """ALiBi slopes of the heads, f32 [heads]; `max_exponent` is the largest exponent of 1/2."""
    whole = 2 ** math.floor(math.log2(heads))
    found = [2 ** (-max_exponent * (i + 1) / whole) for i in range(whole)]
    found += [2 ** (-max_exponent * (2 * i + 1) / (2 * whole)) for i in range(heads - whole)]
    return np.array(found, np.float32)


def biased(net: Decoder, rates: np.ndarray, scale: float = 1.0, *, narrow: bool = False) -> Value:
    """Attention bias, f32 [batch, heads, length, total]: ALiBi, and minus infinity at masked keys.

    Args:
        rates: slopes of the heads.
        scale: multiplier of the scores, applied to the bias as well.
        narrow: whether slopes and products are rounded to bf16, as Falcon's are.
    """
    return net.once(("alibi", rates.tobytes(), scale), lambda: _biased(net, rates, scale, narrow))


def _biased(net: Decoder, rates: np.ndarray, scale: float, narrow: bool) -> Value:
    places = net.Mul(net.Sub(net.CumSum(net.mask, net.Constant(value_int=1)), 1), net.mask)
    keys = net.Cast(net.Unsqueeze(places, [1, 2]), to=1)
    steep = net.constant(rates.reshape(1, -1, 1, 1))

    def rounded(x: Value) -> Value:
        return net.Cast(net.Cast(x, to=BF16), to=1) if narrow else x

    added = rounded(net.Mul(rounded(steep), keys))
    return net.Where(net.visible(), net.Mul(added, scale), float("-inf"))
