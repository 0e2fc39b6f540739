"""Work of products, convolutions, recurrences and attention."""

from __future__ import annotations

import math

from ..runtime.work import Lengths, work
from .attention.attention import attention
from .contrib.dynamic_products import dynamic_quantize_matmul, matmul_integer_to_float
from .contrib.fused import fused_conv, fused_matmul
from .contrib.matmul_nbits import matmul_nbits
from .math.gemm import gemm
from .math.linear import linear
from .math.matmul import matmul
from .nn.conv import conv
from .nn.conv_transpose import conv_transpose
from .nn.gru import gru
from .nn.lstm import lstm
from .nn.rnn import rnn
from .quantized.conv import conv_integer, qlinear_conv
from .quantized.matmul import matmul_integer, qlinear_matmul

Shapes = list[Lengths | None]


def _count(shape: Lengths | None) -> int:
    return 0 if shape is None else math.prod(shape)


@work(matmul, matmul_integer, qlinear_matmul, dynamic_quantize_matmul, matmul_integer_to_float, matmul_nbits, linear)
def products(inputs: Shapes, outputs: Shapes) -> float:
    """Each element of the result is a sum over the last axis of the first input."""
    return float(_count(outputs[0]) * inputs[0][-1]) if inputs[0] else 0.0


@work(gemm, fused_matmul)
def transposable_products(inputs: Shapes, outputs: Shapes) -> float:
    """The axis to sum over may be either of the last two."""
    return float(_count(outputs[0]) * min(inputs[0][-2:])) if inputs[0] else 0.0


@work(conv, conv_integer, fused_conv)
def convolutions(inputs: Shapes, outputs: Shapes) -> float:
    """Each element of the result is a sum over the weights of its channel."""
    return float(_count(outputs[0]) * math.prod(inputs[1][1:])) if inputs[1] else 0.0


@work(qlinear_conv)
def quantized_convolutions(inputs: Shapes, outputs: Shapes) -> float:
    """As a convolution, whose weights are the fourth input."""
    return convolutions([inputs[0], inputs[3]], outputs)


@work(conv_transpose)
def transposed_convolutions(inputs: Shapes, outputs: Shapes) -> float:
    """Each element of the input meets the weights of its channel."""
    return float(_count(inputs[0]) * math.prod(inputs[1][1:])) if inputs[1] else 0.0


@work(lstm, gru, rnn)
def recurrences(inputs: Shapes, outputs: Shapes) -> float:
    """At each time of each sequence, all weights."""
    x = inputs[0]
    return float(math.prod(x[:2]) * (_count(inputs[1]) + _count(inputs[2]))) if x is not None and len(x) == 3 else 0.0


@work(attention)
def attentions(inputs: Shapes, outputs: Shapes) -> float:
    """Each query meets each key, half of them where it looks back only."""
    query, key = inputs[0], inputs[1]
    if query is None or key is None or len(query) < 3 or len(key) < 3:
        return 0.0
    return _count(query) * key[-2] / 2
