"""Feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.ir.graph import Value
from .linear import linear
from .net import Net

Activation = Callable[[Net, Value], Value]

ACTIVATIONS: dict[str, Activation] = {
    "silu": lambda net, x: net.Mul(x, net.Sigmoid(x)),
    "gelu": lambda net, x: net.Gelu(x),
    "gelu_tanh": lambda net, x: net.Gelu(x, approximate="tanh"),
    "quick_gelu": lambda net, x: net.Mul(x, net.Sigmoid(net.Mul(x, 1.702))),
    "relu": lambda net, x: net.Relu(x),
    "relu2": lambda net, x: net.Mul(net.Relu(x), net.Relu(x)),
}


def gated(net: Net, x: Value, name: str, kind: str = "silu") -> Value:
    """down(act(gate(x)) * up(x)) (Shazeer 2020, arXiv:2002.05202)."""
    gate, up = linear(net, x, f"{name}.gate"), linear(net, x, f"{name}.up")
    return linear(net, net.Mul(ACTIVATIONS[kind](net, gate), up), f"{name}.down")


def plain(net: Net, x: Value, name: str, kind: str) -> Value:
    """down(act(up(x)))."""
    return linear(net, ACTIVATIONS[kind](net, linear(net, x, f"{name}.up")), f"{name}.down")


def gated_fused(net: Net, x: Value, name: str, kind: str, width: int) -> Value:
    """down(act(gate(x)) * up(x)), with gate and up fused in ``NAME.both`` [2 x width, in]."""
    gate, up = net.split(linear(net, x, f"{name}.both"), [width, width])
    return linear(net, net.Mul(ACTIVATIONS[kind](net, gate), up), f"{name}.down")
