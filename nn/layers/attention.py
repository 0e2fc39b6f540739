"""Multi-head attention with PyTorch's names of weights and masks."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import zeros
from .. import init
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.attention import multi_head_attention_forward
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
        batch_first = query.ndim == 3 and self.batch_first
        if batch_first:
            query, key, value = _lengths_first(query, key, value)
        result, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            key_padding_mask, need_weights, attn_mask, self.in_proj_weight is None, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return result.transpose(0, 1) if batch_first else result, weights


def _lengths_first(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """The lengths before the batch; what is one tensor stays one."""
    first = query.transpose(0, 1)
    second = first if key is query else key.transpose(0, 1)
    return first, second, first if value is query else second if value is key else value.transpose(0, 1)
