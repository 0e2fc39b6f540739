"""Multi-head attention with PyTorch's names of weights and masks."""

from __future__ import annotations

import math
from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.activation import softmax
from ...tensors.operations.creation import zeros
from ...tensors.operations.indexing import where
from ...tensors.operations.joining import cat
from .. import init
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.attention import masked
from ..functional.conv import pad
from ..functional.dropout import dropout
from ..functional.linear import linear
from .linear import Linear

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads, each on its share of the width (Vaswani et al. 2017).

    Attributes:
        in_proj_weight: [3 * embed_dim, embed_dim] for queries, keys and values, None with other widths of keys or
            values, which have q_proj_weight, k_proj_weight and v_proj_weight.
        in_proj_bias: [3 * embed_dim], or None.
        out_proj: a Linear layer.
        bias_k, bias_v: one more key and value, [1, 1, embed_dim], or None.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise UsageError("E-NN-VALUE", None, f"a width of {embed_dim} does not make {num_heads} heads")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn

        def parameter(*shape: int) -> Parameter:
            return Parameter(zeros(shape, dtype=dtype, device=device))

        own = self.kdim == embed_dim and self.vdim == embed_dim
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", None if own else parameter(embed_dim, width))
        self.register_parameter("in_proj_weight", parameter(3 * embed_dim, embed_dim) if own else None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.register_parameter("bias_k", parameter(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", parameter(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The result and the weights of the keys.

        Args:
            query, key, value: [length, N, width], [N, length, width] with `batch_first`, or [length, width].
            key_padding_mask: [N, keys], booleans that are true where a key does not count, or floats that are added.
            need_weights: return weights [N, queries, keys], or [N, heads, queries, keys] without
                `average_attn_weights`; None otherwise.
            attn_mask: [queries, keys] or [N * heads, queries, keys], as `key_padding_mask`.
            is_causal: a hint that `attn_mask` is causal; the mask is needed.
        """
        if is_causal and attn_mask is None:
            raise UsageError("E-NN-VALUE", None, "is_causal without attn_mask", hint="Pass the causal mask as well")
        single = query.ndim == 2
        if single:
            query, key, value = (each.unsqueeze(0) for each in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        batch, queries, _ = query.shape
        q, k, v = self._projected(query, key, value)
        mask = self._mask(attn_mask, key_padding_mask, batch)
        if self.bias_k is not None:
            k = cat([k, self.bias_k.expand(batch, 1, self.embed_dim)], 1)
            v = cat([v, self.bias_v.expand(batch, 1, self.embed_dim)], 1)
            mask = None if mask is None else pad(mask, [0, 1])
        q, k, v = (each.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for each in (q, k, v))
        if self.add_zero_attn:
            k, v = (pad(each, [0, 0, 0, 1]) for each in (k, v))
            mask = None if mask is None else pad(mask, [0, 1])
        weights = softmax(masked((q * (1 / math.sqrt(self.head_dim))) @ k.mT, mask), -1)
        weights = dropout(weights, self.dropout, self.training)
        found = (weights @ v).transpose(1, 2).reshape(batch, queries, self.embed_dim)
        result = self.out_proj(found)
        shown = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
        if single:
            return result.squeeze(0), None if shown is None else shown.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), shown

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query.expression is key.expression and key.expression is value.expression:
            return tuple(linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        else:
            weights = self.in_proj_weight.chunk(3)
        given = zip((query, key, value), weights, biases, strict=True)
        return tuple(linear(x, weight, bias) for x, weight, bias in given)

    def _mask(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int) -> Tensor | None:
        """Both masks as floats that are added to scores [N, heads, queries, keys]."""
        found: Tensor | None = None
        if attn_mask is not None:
            found = _added(attn_mask)
            if found.ndim == 3:
                found = found.unflatten(0, (batch, self.num_heads))
        if key_padding_mask is not None:
            padding = _added(key_padding_mask).unsqueeze(1).unsqueeze(1)
            found = padding if found is None else found + padding
        return found


def _added(mask: Tensor) -> Tensor:
    """-inf where a mask of booleans is true; floats as they are."""
    return where(mask, -math.inf, 0.0) if mask.dtype.kind == "bool" else mask
