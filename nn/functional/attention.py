"""Attention: values weighted by how well their keys fit the queries."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf, shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.activation import softmax
from ...tensors.operations.indexing import where
from .dropout import dropout

__all__ = ["scaled_dot_product_attention"]


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
