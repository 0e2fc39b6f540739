"""Activation function names: this package's and those of transformers in config.json."""

from __future__ import annotations

from typing import Any

NAMES = ("silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2")
SPELLINGS = {
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_pytorch": "gelu",
    "relu_squared": "relu2",
}


def activation(name: Any) -> str:
    """Name in this package of an activation in config.json. ValueError if unknown."""
    ours = SPELLINGS.get(name, name)
    if ours not in NAMES:
        raise ValueError(f"unknown activation {name!r}")
    return str(ours)


def hf_activation(name: str) -> str:
    """Transformers' name of an activation."""
    return "gelu_pytorch_tanh" if name == "gelu_tanh" else name
