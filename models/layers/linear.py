"""Linear layers, embeddings and the language-model head, for weights of any dtype or block type."""

from __future__ import annotations

from ...runtime.ir.graph import Value
from .net import STORAGE_ONLY, Net


def linear(net: Net, x: Value, name: str) -> Value:
    """x W^T + b with ``NAME.weight`` [out, in] and, if the model has it, ``NAME.bias`` [out]."""
    return _linear(net, x, name, name)


def _linear(net: Net, x: Value, weight: str, bias: str) -> Value:
    y: Value = net.MatMul(x, net.Transpose(net.matrix(f"{weight}.weight"), perm=[1, 0]))
    return net.Add(y, net.vector(f"{bias}.bias")) if net.has(f"{bias}.bias") else y


def embedding(net: Net, ids: Value, name: str) -> Value:
    """Rows of ``NAME.weight`` [count, width] at `ids`, as f32."""
    weight = net.matrix(f"{name}.weight")
    rows: Value = net.Gather(weight, ids)
    return net.Cast(rows, to=1) if weight.dtype is not None and weight.dtype.name in STORAGE_ONLY else rows


def head(net: Net, x: Value, name: str = "head", tied: str = "embed") -> Value:
    """Logits: a linear layer, whose weight is the tied embedding if the model has no separate head."""
    return _linear(net, x, name if net.has(f"{name}.weight") else tied, name)


def capped(net: Net, logits: Value) -> Value:
    """Logits limited to ``logit_cap`` by its multiple of their tanh, if the model has one."""
    cap = net.config.logit_cap
    return net.Mul(net.Tanh(net.Div(logits, cap)), cap) if cap else logits
