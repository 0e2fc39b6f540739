"""Attention over a cache of keys and values (Vaswani et al. 2017, arXiv:1706.03762), with fewer heads of keys and values where a model has them."""

from __future__ import annotations

from ...runtime.graph import Value
from .decoder import Decoder
from .linear import linear
from .norm import head_norm, norm
from .rope import Rotary


def self_attention(
    net: Decoder, x: Value, i: int, rotary: Rotary | None, mask: Value, *, scale: float | None = None, softcap: float = 0.0,
    whole_norm: bool = False,
) -> Value:
    """Attention of layer `i` with the weights ``layers.I.attn.{q,k,v,o}``; heads of queries and keys (or all at once, `whole_norm`) are normed
    where the model has ``q_norm`` and ``k_norm``, then turned."""
    config, name = net.config, f"layers.{i}.attn"

    def turned(part: str, heads: int) -> Value:
        y = linear(net, x, f"{name}.{part}")
        if net.has(f"{name}.{part}_norm.weight"):
            y = norm(net, y, f"{name}.{part}_norm") if whole_norm else head_norm(net, y, f"{name}.{part}_norm", heads, config.head_dim, config.eps)
        return rotary.turn(net, y, heads, net.positions) if rotary else y

    q, k, v = turned("q", config.heads), turned("k", config.kv_heads), linear(net, x, f"{name}.v")
    y = attend(net, q, k, v, i, heads=config.heads, kv_heads=config.kv_heads, size=config.head_dim, mask=mask, scale=scale, softcap=softcap)
    return linear(net, y, f"{name}.o")


def attend(
    net: Decoder, q: Value, k: Value, v: Value, layer: int, *, heads: int, kv_heads: int, size: int, value_size: int | None = None,
    mask: Value | None = None, scale: float | None = None, softcap: float = 0.0,
) -> Value:
    """[batch, length, heads x value_size] from queries [batch, length, heads x size] and keys and values of this run's tokens.

    Args:
        mask: what may be seen (bool) or is added to the scores (f32), broadcast to [batch, heads, length, total]; causal where None.
        scale: of the scores, 1 / sqrt(size) where None.
        softcap: scores are kept within it by a tanh, where it is not 0.
    """
    keys = net.cached(f"key_values.{layer}.key", k, kv_heads, size)
    values = net.cached(f"key_values.{layer}.value", v, kv_heads, value_size or size)
    queries = net.Transpose(net.heads_apart(q, heads, size), perm=[0, 2, 1, 3])
    y = net.Attention(queries, keys, values, net.visible() if mask is None else mask, scale=scale, softcap=softcap or None)
    return net.heads_together(net.Transpose(y, perm=[0, 2, 1, 3]))
