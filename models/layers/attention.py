"""Attention over a cache of keys and values (Vaswani et al. 2017, arXiv:1706.03762), with fewer heads of keys and values where a model has them."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.graph import Value
from .decoder import Decoder
from .linear import linear
from .norm import head_norm
from .rope import Rotary


def self_attention(
    net: Decoder, x: Value, i: int, rotary: Rotary | None, *, window: int | None = None, mask: Value | None = None,
    scale: float | None = None, softcap: float = 0.0, normed: Callable[[Decoder, Value, str, int], Value] | None = None,
) -> Value:
    """Attention of layer `i` with the weights ``layers.I.attn.{q,k,v,o}``, or ``qkv`` for queries, keys and values in one matrix.

    Queries and keys are normed by `normed` (x, name, heads), which for None norms each head where the model has ``q_norm`` and ``k_norm``,
    then turned. The rest as of `attend`.
    """
    config, name = net.config, f"layers.{i}.attn"
    counts = (config.heads, config.kv_heads)
    q, k, v = projected(net, x, name)
    normed = normed or heads_normed
    q, k = (normed(net, y, f"{name}.{part}_norm", heads) for y, part, heads in zip((q, k), "qk", counts, strict=True))
    if rotary:
        q, k = (rotary.turn(net, y, heads, net.positions) for y, heads in zip((q, k), counts, strict=True))
    sizes = {"heads": config.heads, "kv_heads": config.kv_heads, "size": config.head_dim}
    y = attend(net, q, k, v, i, **sizes, window=window, mask=mask, scale=scale, softcap=softcap)
    return linear(net, y, f"{name}.o")


def projected(net: Decoder, x: Value, name: str) -> tuple[Value, Value, Value]:
    """Queries, keys and values from one matrix or three."""
    if not net.has(f"{name}.qkv.weight"):
        return linear(net, x, f"{name}.q"), linear(net, x, f"{name}.k"), linear(net, x, f"{name}.v")
    config = net.config
    q, k, v = net.split(linear(net, x, f"{name}.qkv"), [count * config.head_dim for count in (config.heads, config.kv_heads, config.kv_heads)])
    return q, k, v


def heads_normed(net: Decoder, x: Value, name: str, heads: int) -> Value:
    """Each head by its root mean square, where the model has ``NAME.weight``."""
    config = net.config
    return head_norm(net, x, name, heads, config.head_dim, config.eps) if net.has(f"{name}.weight") else x


def attend(
    net: Decoder, q: Value, k: Value, v: Value, layer: int, *, heads: int, kv_heads: int, size: int, value_size: int | None = None,
    window: int | None = None, mask: Value | None = None, scale: float | None = None, softcap: float = 0.0,
) -> Value:
    """[batch, length, heads x value_size] from queries [batch, length, heads x size] and keys and values of this run's tokens.

    Args:
        window: how many tokens a query sees, itself included; all before it where None.
        mask: what may be seen (bool) or is added to the scores (f32), broadcast to [batch, heads, length, total]; by the window where None.
        scale: of the scores, 1 / sqrt(size) where None.
        softcap: scores are kept within it by a tanh, where it is not 0.
    """
    keys = net.cached(f"key_values.{layer}.key", k, kv_heads, size, window)
    values = net.cached(f"key_values.{layer}.value", v, kv_heads, value_size or size, window)
    queries = net.Transpose(net.heads_apart(q, heads, size), perm=[0, 2, 1, 3])
    y = net.Attention(queries, keys, values, net.visible(window) if mask is None else mask, scale=scale, softcap=softcap or None)
    return net.heads_together(net.Transpose(y, perm=[0, 2, 1, 3]))
