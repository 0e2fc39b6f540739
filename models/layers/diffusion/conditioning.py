"""Conditioning of diffusion transformers (DiT; Peebles and Xie 2022, arXiv:2212.09748): timestep embeddings, adaptive
layer norms."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.graph import Value
from ..image.image_net import IMAGE_ACTIVATIONS
from ..linear import linear
from ..net import Net

FREQUENCIES = 256
"""Cosines and sines of a timestep."""
EPSILON = 1e-6


def silu(net: Net, x: Value) -> Value:
    """x sigmoid(x)."""
    y: Value = net.Mul(x, net.Sigmoid(x))
    return y


def sinusoidal(
    net: Net, timestep: Value, width: int = FREQUENCIES, *, sines_first: bool = False, shift: int = 0
) -> Value:
    """Cosines, then sines of timesteps [batch], with periods from 2 pi to 10,000 times that: [batch, width].

    The exponents are rounded to f32, as where the models were trained: a timestep of 1,000 multiplies the difference.

    Args:
        sines_first: whether sines stand before cosines.
        shift: 1 if the longest period is that of the last frequency, 0 if that of the one after it.
    """
    half = width // 2
    exponents = np.float32(-np.log(10000.0)) * np.arange(half, dtype=np.float32) / np.float32(half - shift)
    frequencies = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = net.Mul(net.Unsqueeze(timestep, [1]), net.constant(frequencies[None]))
    waves = (net.Cos(angles), net.Sin(angles))
    y: Value = net.Concat(*waves[:: -1 if sines_first else 1], axis=-1)
    return y


def two_layers(net: Net, x: Value, name: str, act: str = "silu") -> Value:
    """Two linear layers with an activation between them."""
    return linear(net, IMAGE_ACTIVATIONS[act](net, linear(net, x, f"{name}.linear_1")), f"{name}.linear_2")


def modulation(net: Net, condition: Value, name: str, count: int) -> list[Value]:
    """`count` vectors [batch, 1, width] by which norms and residuals are changed, of the condition [batch, width]."""
    y = net.Unsqueeze(linear(net, silu(net, condition), name), [1])
    pieces: list[Value] = net.Split(y, axis=-1, num_outputs=count, outputs=count)
    return pieces


def plain_norm(net: Net, x: Value, width: int) -> Value:
    """Layer norm without weights."""
    ones = net.once(("ones", width), lambda: net.constant(np.ones(width, np.float32)))
    y: Value = net.LayerNormalization(x, ones, epsilon=EPSILON)
    return y


def modulated(net: Net, x: Value, shift: Value, scale: Value) -> Value:
    """x (1 + scale) + shift."""
    y: Value = net.Add(net.Mul(x, net.Add(scale, 1.0)), shift)
    return y


def gated(net: Net, residual: Value, gate: Value, x: Value) -> Value:
    """residual + gate x."""
    y: Value = net.Add(residual, net.Mul(gate, x))
    return y


def feed_forward(net: Net, x: Value, name: str) -> Value:
    """Two linear layers with the tanh approximation of GELU between them."""
    return linear(net, net.Gelu(linear(net, x, f"{name}.net.0.proj"), approximate="tanh"), f"{name}.net.2")
