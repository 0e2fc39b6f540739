"""Attention with Keras' weights: kernels [in, heads, width] of query, key and value, and [heads, width, out]."""

from __future__ import annotations

import math
from typing import Any

from ....nn.functional.attention import causal
from ....nn.functional.dropout import dropout
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ....tensors.operations.indexing import where
from ..core import activations
from ..core.layer import Layer
from .basic import EinsumDense, shares_of

__all__ = ["AdditiveAttention", "Attention", "MultiHeadAttention"]


class MultiHeadAttention(Layer):
    """Attention of several heads (Vaswani et al. 2017): ``layer(query, value, key=None)``.

    Args:
        key_dim: width of a head of queries and keys; value_dim: of values, the same by default.
        output_shape: width of the output, that of the query by default.
    """

    supports_masking = True

    def __init__(
        self, num_heads: int, key_dim: int, value_dim: int | None = None, dropout: float = 0.0, use_bias: bool = True,
        output_shape: Any = None, attention_axes: Any = None, kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("attention_axes", attention_axes, (None, (1,), [1]))
        self.num_heads, self.key_dim, self.value_dim = num_heads, key_dim, value_dim or key_dim
        self.dropout, self.use_bias = dropout, use_bias
        self.width = output_shape[0] if isinstance(output_shape, list | tuple) else output_shape
        self.options = {
            "kernel_initializer": kernel_initializer, "bias_initializer": bias_initializer,
            "kernel_regularizer": kernel_regularizer, "bias_regularizer": bias_regularizer,
        }  # fmt: skip

    def build_for(self, arguments: Any) -> None:
        """Make the weights for a query, a value and a key."""
        if not self.built:
            query, value = arguments[0].shape, (arguments[1] if len(arguments) > 1 else arguments[0]).shape
            self.build(query, value, arguments[2].shape if len(arguments) > 2 else value)
            self.built = True

    def build(self, query_shape: Any, value_shape: Any = None, key_shape: Any = None) -> None:
        """Make the weights for inputs of these shapes; values are queries, and keys are values, by default."""
        value_shape = query_shape if value_shape is None else value_shape
        shapes = {"query": query_shape, "key": key_shape or value_shape, "value": value_shape}
        for name, shape in shapes.items():
            width = self.value_dim if name == "value" else self.key_dim
            made = EinsumDense(
                "abc,cde->abde", (None, self.num_heads, width), bias_axes="de" if self.use_bias else None, name=name,
                **self.options,
            )  # fmt: skip
            made.build(shape)
            made.built = True
            setattr(self, f"{name}_dense", made)
        bias = "d" if self.use_bias else None
        output = EinsumDense(
            "abhe,hed->abd", (None, self.width or query_shape[-1]), bias_axes=bias, name="attention_output",
            **self.options,
        )  # fmt: skip
        output.build((None, None, self.num_heads, self.value_dim))
        output.built = True
        self.output_dense = output

    def call(
        self, query: Tensor, value: Tensor, key: Tensor | None = None, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, use_causal_mask: bool = False, query_mask: Any = None,
        value_mask: Any = None, key_mask: Any = None,
    ) -> Any:  # fmt: skip
        """The output [N, T, width], with the weights [N, heads, T, S] if they are asked for.

        Args:
            attention_mask: true where a key counts, [N, T, S].
            use_causal_mask: each query counts keys up to its own position.
            query_mask, value_mask, key_mask: true where a step counts, [N, T] and [N, S]; the masks of the tensors by
                default.
        """
        q = self.query_dense.call(query).transpose(1, 2)  # call: the masks of the inputs count here, not in the layer
        k = self.key_dense.call(value if key is None else key).transpose(1, 2)
        v = self.value_dense.call(value).transpose(1, 2)
        scores = (q * (1 / math.sqrt(self.key_dim))) @ k.transpose(-1, -2)
        mask = None if attention_mask is None else as_tensor(attention_mask).bool()
        for steps, dim in ((query_mask, -1), (value_mask, -2), (key_mask, -2)):
            if steps is not None:
                shown = as_tensor(steps).bool().unsqueeze(dim)
                mask = shown if mask is None else mask & shown
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1)
        if use_causal_mask:
            order = causal(scores.shape[-2], scores.shape[-1])
            mask = order if mask is None else mask & order
        if mask is None or return_attention_scores or self.dropout:
            weights = shares_of(scores, mask)
        else:  # as in Keras, a query without any key has the mean of all values
            weights = activations.softmax(where(mask, scores, -1e9))
        shares = dropout(weights, self.dropout) if self.training and self.dropout else weights
        found = self.output_dense((shares @ v).transpose(1, 2))
        return (found, weights) if return_attention_scores else found


class Attention(Layer):
    """Attention without projections: ``layer([query, value])`` or ``layer([query, value, key])``, [N, T, width].

    Args:
        use_scale: a learned factor of the scores.
        score_mode: "dot" (Luong et al. 2015), or "concat" for the sum of tanh(query + key).
    """

    def __init__(
        self, use_scale: bool = False, score_mode: str = "dot", dropout: float = 0.0, seed: int | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("score_mode", score_mode, ("dot", "concat"))
        self.use_scale, self.score_mode, self.dropout = use_scale, score_mode, dropout

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight((), "ones") if self.use_scale else None
        self.concat_score_weight = self.add_weight((), "ones") if self.score_mode == "concat" else None

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of keys for queries, [N, T, S]."""
        if self.concat_score_weight is None:
            found = query @ key.transpose(-1, -2)
            return found if self.scale is None else found * self.scale
        added = query.unsqueeze(-2) + key.unsqueeze(-3)
        return self.concat_score_weight * (added if self.scale is None else added * self.scale).tanh().sum(-1)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of the query."""
        return None if mask is None else mask[0]

    def call(
        self, inputs: Any, mask: Any = None, return_attention_scores: bool = False, use_causal_mask: bool = False
    ) -> Any:
        """The output [N, T, width], with the weights [N, T, S] if they are asked for.

        Args:
            mask: true where a query, and where a value, counts: [N, T] and [N, S]; each may be None.
            use_causal_mask: each query counts keys up to its own position.
        """
        query, value = inputs[:2]
        scores = self.scores(query, inputs[2] if len(inputs) > 2 else value)
        masks = list(mask or ())[:2] or (None, None)
        of_queries, of_values = (None if each is None else as_tensor(each).bool() for each in masks)
        shown = None if of_values is None else of_values.unsqueeze(-2)
        if use_causal_mask:
            order = causal(scores.shape[-2], scores.shape[-1])
            shown = order if shown is None else shown & order
        weights = activations.softmax(scores if shown is None else where(shown, scores, scores - 1e9))
        shares = dropout(weights, self.dropout) if self.training and self.dropout else weights
        found = shares @ value
        if of_queries is not None:
            found = found * of_queries.unsqueeze(-1).to(found.dtype)
        return (found, weights) if return_attention_scores else found


class AdditiveAttention(Attention):
    """Attention by the weighted sum of tanh(query + key) (Bahdanau et al. 2015)."""

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, **options: Any) -> None:
        super().__init__(use_scale, "dot", dropout, **options)

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight((input_shape[0][-1],), "glorot_uniform") if self.use_scale else None

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of keys for queries, [N, T, S]."""
        found = (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh()
        return (found if self.scale is None else found * self.scale).sum(-1)
