"""Arithmetic cost of products, convolutions, recurrences and attention."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...runtime.base.process_cache import PROCESS, owned
from ...runtime.ir.cost import Lengths, Rule

Shapes = list[Lengths | None]
COST_RULES: dict[str, Rule] = owned({}, PROCESS)
"""Domain and name of an operator -> its rule, so that none has to be loaded."""


def _work(*operators: str) -> Callable[[Rule], Rule]:
    def registered(rule: Rule) -> Rule:
        COST_RULES.update(dict.fromkeys(operators, rule))
        return rule

    return registered


def _count(shape: Lengths | None) -> int:
    return 0 if shape is None else math.prod(shape)


@_work(
    ".MatMul",
    ".MatMulInteger",
    ".QLinearMatMul",
    "com.microsoft.DynamicQuantizeMatMul",
    "com.microsoft.MatMulIntegerToFloat",
    "com.microsoft.MatMulNBits",
    "candle.Linear",
)
def products(inputs: Shapes, outputs: Shapes) -> float:
    """Each element of the result is a sum over the last axis of the first input."""
    return float(_count(outputs[0]) * inputs[0][-1]) if inputs[0] else 0.0


@_work(".Gemm", "com.microsoft.FusedMatMul")
def transposable_products(inputs: Shapes, outputs: Shapes) -> float:
    """The axis to sum over may be either of the last two."""
    return float(_count(outputs[0]) * min(inputs[0][-2:])) if inputs[0] else 0.0


@_work(".Conv", ".ConvInteger", "com.microsoft.FusedConv")
def convolutions(inputs: Shapes, outputs: Shapes) -> float:
    """Each element of the result is a sum over the weights of its channel."""
    return float(_count(outputs[0]) * math.prod(inputs[1][1:])) if inputs[1] else 0.0


@_work(".QLinearConv", "candle.QLinearConvLookup")
def quantized_convolutions(inputs: Shapes, outputs: Shapes) -> float:
    """As a convolution, whose weights are the fourth input."""
    return convolutions([inputs[0], inputs[3]], outputs)


@_work(".ConvTranspose")
def transposed_convolutions(inputs: Shapes, outputs: Shapes) -> float:
    """Each element of the input meets the weights of its channel."""
    return float(_count(inputs[0]) * math.prod(inputs[1][1:])) if inputs[1] else 0.0


@_work(".LSTM", ".GRU", ".RNN")
def recurrences(inputs: Shapes, outputs: Shapes) -> float:
    """Cost of recurrent operators: all weights at each time of each sequence."""
    x = inputs[0]
    return float(math.prod(x[:2]) * (_count(inputs[1]) + _count(inputs[2]))) if x is not None and len(x) == 3 else 0.0


@_work(".Attention")
def attentions(inputs: Shapes, outputs: Shapes) -> float:
    """Each query meets each key, half of them where it looks back only."""
    query, key = inputs[0], inputs[1]
    if query is None or key is None or len(query) < 3 or len(key) < 3:
        return 0.0
    return _count(query) * key[-2] / 2
