"""Linear layers, embeddings and the language-model head, for weights of any dtype or block type."""

from __future__ import annotations

from ...runtime.contract.architecture import OWN_HEAD, lacks_head
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


def own_embedding(net: Net, side: str) -> str:
    """The name of the token embedding of the encoder or decoder: its own, or that of both."""
    own = f"{side}.embed"
    return own if net.has(f"{own}.weight") else "embed"


def head(net: Net, x: Value, name: str = "head", tied: str = "embed") -> Value:
    """Logits: a linear layer, whose weight is the tied embedding if the model has no separate head.

    FormatError for a missing head that is not tied.
    """
    if net.has(f"{name}.weight"):
        return linear(net, x, name)
    own = net.config.values.get(f"{name.removesuffix('head')}{OWN_HEAD}")
    if own is not None:
        raise lacks_head(net.config.values.get("path"), own)
    return _linear(net, x, tied, name)


def capped(net: Net, logits: Value) -> Value:
    """Logits limited to ``logit_cap`` by its multiple of their tanh, if the model has one."""
    cap = net.config.logit_cap
    return net.Mul(net.Tanh(net.Div(logits, cap)), cap) if cap else logits
