"""Feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.graph import Value
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
SPELLINGS = {
    "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_python": "gelu",
    "gelu_pytorch": "gelu", "relu_squared": "relu2",
}  # fmt: skip


def activation(name: Any) -> str:
    """Our name of an activation of config.json. ValueError where it is not known."""
    ours = SPELLINGS.get(name, name)
    if ours not in ACTIVATIONS:
        raise ValueError(f"the activation {name!r} is not known")
    return str(ours)


def spelled(name: str) -> str:
    """What transformers calls an activation of ours."""
    return "gelu_pytorch_tanh" if name == "gelu_tanh" else name


def gated(net: Net, x: Value, name: str, kind: str = "silu") -> Value:
    """down(act(gate(x)) * up(x)) (Shazeer 2020, arXiv:2002.05202)."""
    gate, up = linear(net, x, f"{name}.gate"), linear(net, x, f"{name}.up")
    return linear(net, net.Mul(ACTIVATIONS[kind](net, gate), up), f"{name}.down")


def plain(net: Net, x: Value, name: str, kind: str) -> Value:
    """down(act(up(x)))."""
    return linear(net, ACTIVATIONS[kind](net, linear(net, x, f"{name}.up")), f"{name}.down")


def gated_both(net: Net, x: Value, name: str, kind: str, width: int) -> Value:
    """down(act(gate(x)) * up(x)), where gate and up are one matrix ``NAME.both`` [2 x width, in]."""
    gate, up = net.split(linear(net, x, f"{name}.both"), [width, width])
    return linear(net, net.Mul(ACTIVATIONS[kind](net, gate), up), f"{name}.down")
