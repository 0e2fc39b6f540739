"""Attention: values weighted by how well their keys fit the queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf, shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.activation import softmax
from ...tensors.operations.indexing import where
from ...tensors.operations.joining import cat
from .conv import pad
from .dropout import dropout
from .linear import linear

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


def masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores plus a mask of floats, or -inf where a mask of booleans is false."""
    if mask is None:
        return scores
    return where(mask, scores, -math.inf) if mask.dtype.kind == "bool" else scores + mask.to(scores.dtype)


def causal(queries: int, keys: int) -> Tensor:
    """True where a key is not after its query."""
    return Tensor(leaf(np.tri(queries, keys, dtype=bool)))


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query @ key.mT * scale + mask) @ value of [..., heads, length, width].

    Args:
        attn_mask: booleans that are true where a key counts, or floats that are added.
        dropout_p: the share of the weights that is set to 0.
        is_causal: each query counts keys up to its own position.
        scale: 1 / sqrt(width) by default.
        enable_gqa: several heads of queries share one of keys and values.
    """
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = ", ".join(str(list(each.shape)) for each in (query, key, value))
        raise shape_error(f"scaled_dot_product_attention: {shapes} do not fit")
    if is_causal and attn_mask is not None:
        raise UsageError("E-NN-VALUE", None, "attention with attn_mask and is_causal", hint="Put both into the mask")
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        share = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(share, -3) for each in (key, value))
    factor = 1 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale
    mask = causal(query.shape[-2], key.shape[-2]) if is_causal else attn_mask
    weights = softmax(masked((query * factor) @ key.mT, mask), -1)
    return dropout(weights, dropout_p) @ value


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True,
    key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of several heads: the result [queries, N, width] and the weights of the keys, None if not needed.

    Args:
        query, key, value: [length, N, width], or [length, width].
        in_proj_weight: of queries, keys and values, [3 * width, width]; q_proj_weight, k_proj_weight and v_proj_weight
            in place of it with `use_separate_proj_weight`.
        bias_k, bias_v: one more key and value [1, 1, width]; add_zero_attn: one more of zeros.
        key_padding_mask: [N, keys], booleans that are true where a key does not count, or floats that are added.
        attn_mask: [queries, keys] or [N * heads, queries, keys], as `key_padding_mask`.
        static_k, static_v: keys and values of all heads [N * heads, keys, width of a head].
        average_attn_weights: weights [N, queries, keys] in place of [N, heads, queries, keys].
        is_causal: a hint that `attn_mask` is causal; the mask is needed.
    """
    if is_causal and attn_mask is None:
        raise UsageError("E-NN-VALUE", None, "is_causal without attn_mask", hint="Pass the causal mask as well")
    if query.shape[-1] != embed_dim_to_check:
        raise shape_error(f"attention of width {embed_dim_to_check}: the queries have the shape {list(query.shape)}")
    single = query.ndim == 2
    if single:
        query, key, value = (each.unsqueeze(1) for each in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    queries, batch, width = query.shape
    weights_of = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = (each.transpose(0, 1) for each in _projected(query, key, value, weights_of, in_proj_bias))
    mask = _float_mask(attn_mask, key_padding_mask, batch, num_heads)
    if bias_k is not None and bias_v is not None:
        k = cat([k, bias_k.expand(batch, 1, width)], 1)
        v = cat([v, bias_v.expand(batch, 1, width)], 1)
        mask = None if mask is None else pad(mask, [0, 1])
    q, k, v = (each.unflatten(-1, (num_heads, width // num_heads)).transpose(1, 2) for each in (q, k, v))
    if static_k is not None:
        k = static_k.unflatten(0, (batch, num_heads))
    if static_v is not None:
        v = static_v.unflatten(0, (batch, num_heads))
    if add_zero_attn:
        k, v = (pad(each, [0, 0, 0, 1]) for each in (k, v))
        mask = None if mask is None else pad(mask, [0, 1])
    weights = softmax(masked((q * (1 / math.sqrt(width // num_heads))) @ k.mT, mask), -1)
    weights = dropout(weights, dropout_p, training)
    found = (weights @ v).transpose(1, 2).reshape(batch, queries, width)
    result = linear(found, out_proj_weight, out_proj_bias).transpose(0, 1)
    shown = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
    return (result.squeeze(1), None if shown is None else shown.squeeze(0)) if single else (result, shown)


def _projected(query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Queries, keys and values by one matrix or three; one product computes them where the inputs are one tensor."""
    if isinstance(weights, Tensor):
        if query.expression is key.expression and key.expression is value.expression:
            return tuple(linear(query, weights, bias).chunk(3, -1))
        weights = weights.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(linear(x, weight, b) for x, weight, b in zip((query, key, value), weights, biases, strict=True))


def _float_mask(attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int) -> Tensor | None:
    """Both masks as floats that are added to scores [N, heads, queries, keys]."""
    found: Tensor | None = None
    if attn_mask is not None:
        found = _added(attn_mask)
        if found.ndim == 3:
            found = found.unflatten(0, (batch, heads))
    if key_padding_mask is not None:
        padding = _added(key_padding_mask).unsqueeze(1).unsqueeze(1)
        found = padding if found is None else found + padding
    return found


def _added(mask: Tensor) -> Tensor:
    """-inf where a mask of booleans is true; floats as they are."""
    return where(mask, -math.inf, 0.0) if mask.dtype.kind == "bool" else mask
