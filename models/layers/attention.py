"""Attention with a KV cache (Vaswani et al. 2017, arXiv:1706.03762), multi-head or grouped-query."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.graph import Value
from .decoder import Decoder
from .linear import linear
from .norm import head_norm
from .rope import Rotary


@dataclass(frozen=True)
class Scores:
    """Settings of attention scores before the softmax.

    Attributes:
        mask: which keys are visible (bool) or what is added to the scores (f32), broadcast to [batch, heads, length,
            total]; None for the window's mask.
        scale: None for 1 / sqrt(head_dim).
        softcap: scores are limited to it by softcap * tanh(scores / softcap); 0 for no limit.
        chunked: whether the window is a chunk with fixed ends (see `Decoder.visible`).
    """

    mask: Value | None = None
    scale: float | None = None
    softcap: float = 0.0
    chunked: bool = False


PLAIN_SCORES = Scores()


def self_attention(
    net: Decoder,
    x: Value,
    i: int,
    rotary: Rotary | None,
    *,
    window: int | None = None,
    scores: Scores = PLAIN_SCORES,
    normed: Callable[[Decoder, Value, str, int], Value] | None = None,
) -> Value:
    """Attention of layer `i` with the weights ``layers.I.attn.{q,k,v,o}``, or ``qkv`` for fused projections.

    Queries and keys are normalized by `normed` (net, x, name, heads), then rotated. If `normed` is None, heads are
    normalized where the model has ``q_norm`` and ``k_norm``. See `attend` for the other arguments.
    """
    config, name = net.config, f"layers.{i}.attn"
    counts = (config.heads, config.kv_heads)
    q, k, v = projected(net, x, name)
    normed = normed or heads_normed
    q, k = (normed(net, y, f"{name}.{part}_norm", heads) for y, part, heads in zip((q, k), "qk", counts, strict=True))
    if rotary:
        q, k = (rotary.rotate(net, y, heads, net.positions) for y, heads in zip((q, k), counts, strict=True))
    return linear(net, attend(net, q, k, v, i, window=window, scores=scores), f"{name}.o")


def gated_attention(net: Decoder, x: Value, i: int, rotary: Rotary) -> Value:
    """Attention of layer `i` whose output is multiplied by the sigmoid of a gate (Qiu et al. 2025, arXiv:2505.06708).

    ``layers.I.attn.q`` [heads x 2 x head_dim, hidden] has a query and a gate for each head. Heads are normalized where
    the model has ``q_norm`` and ``k_norm``.
    """
    config, name = net.config, f"layers.{i}.attn"
    both = net.split_heads(linear(net, x, f"{name}.q"), config.heads, 2 * config.head_dim)
    q, gate = (net.merge_heads(part) for part in net.split(both, [config.head_dim, config.head_dim]))
    k, v = linear(net, x, f"{name}.k"), linear(net, x, f"{name}.v")
    q = rotary.rotate(net, heads_normed(net, q, f"{name}.q_norm", config.heads), config.heads, net.positions)
    k = rotary.rotate(net, heads_normed(net, k, f"{name}.k_norm", config.kv_heads), config.kv_heads, net.positions)
    return linear(net, net.Mul(attend(net, q, k, v, i), net.Sigmoid(gate)), f"{name}.o")


def projected(net: Decoder, x: Value, name: str) -> tuple[Value, Value, Value]:
    """Queries, keys and values from one fused projection or three."""
    if not net.has(f"{name}.qkv.weight"):
        return linear(net, x, f"{name}.q"), linear(net, x, f"{name}.k"), linear(net, x, f"{name}.v")
    config = net.config
    q, k, v = net.split(
        linear(net, x, f"{name}.qkv"),
        [count * config.head_dim for count in (config.heads, config.kv_heads, config.kv_heads)],
    )
    return q, k, v


def heads_normed(net: Decoder, x: Value, name: str, heads: int) -> Value:
    """Root mean square norm of each head, if the model has ``NAME.weight``."""
    config = net.config
    return head_norm(net, x, name, heads, config.head_dim, config.eps) if net.has(f"{name}.weight") else x


def attend(
    net: Decoder, q: Value, k: Value, v: Value, layer: int, *, window: int | None = None, scores: Scores = PLAIN_SCORES
) -> Value:
    """Attention output [batch, length, heads x head_dim] from queries of that shape and the keys and values of this
    run's tokens.

    Args:
        window: number of tokens that a query attends to, itself included; None for all earlier ones.
    """
    kv_heads, size = net.config.kv_heads, net.config.head_dim
    keys = net.cached(f"key_values.{layer}.key", k, kv_heads, size, window)
    values = net.cached(f"key_values.{layer}.value", v, kv_heads, size, window)
    return attend_cached(net, q, keys, values, size, window=window, scores=scores)


def attend_cached(
    net: Decoder,
    q: Value,
    keys: Value,
    values: Value,
    size: int,
    *,
    window: int | None = None,
    scores: Scores = PLAIN_SCORES,
) -> Value:
    """Attention output [batch, length, heads x size] from queries of that shape and `Decoder.cached` keys and values
    [batch, KV heads, total, size]."""
    queries = net.Transpose(net.split_heads(q, net.config.heads, size), perm=[0, 2, 1, 3])
    mask = net.visible(window, chunked=scores.chunked) if scores.mask is None else scores.mask
    y = net.Attention(queries, keys, values, mask, scale=scores.scale, softcap=scores.softcap or None)
    return net.merge_heads(net.Transpose(y, perm=[0, 2, 1, 3]))
