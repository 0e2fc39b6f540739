"""Decoders that attend to an encoder's hidden states.

Beside the inputs of `layers.decoder`, a decoder has ``encoder_attention_mask`` [texts, source], i64. There are two
kinds, as for KV caches:

- growing: the decoder computes keys and values of the source from ``encoder_hidden_states`` [texts, source, hidden],
  f32, and returns them with those of its own tokens: ``present.0.encoder.key`` and ``present.0.decoder.key``. Exported
  models have this.
- fixed: the encoder's graph computes keys and values of the source once, and the decoder has them as inputs:
  ``cross_key_values.0.key`` [texts, heads, source, head_dim]. A text may have several rows of the decoder's batch, one
  after another, which share the keys and values: beams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.ir.graph import Value
from ..layers.attention import PLAIN_SCORES, Scores
from ..layers.decoder import CACHE_POSITION, LENGTH, TOTAL, Decoder
from ..layers.linear import embedding, linear
from ..layers.net import Net

if TYPE_CHECKING:
    from ...runtime.ir.graph import Dim

TEXTS, SOURCE = "texts", "encoder_sequence_length"
"""Symbolic dimensions: texts, and tokens of the longest one."""
KINDS = ("key", "value")
CROSS = "cross_key_values.{i}.{kind}"
"""Keys and values of the source in layer i: outputs of the encoder's graph, inputs of the decoder's."""


class CrossDecoder(Decoder):
    """A net with the inputs of a decoder that attends to an encoder."""

    def begin(self, embed: str = "embed") -> Value:
        """Declare the inputs and return the token embeddings [batch, length, hidden]."""
        texts: Dim = TEXTS if self.fixed else "batch_size"
        self.ids = self.input("input_ids", "i64", ("batch_size", LENGTH))
        self.source_mask = self.input("encoder_attention_mask", "i64", (texts, SOURCE))
        if self.fixed:
            self.mask = self.input("attention_mask", "i64", ("batch_size", TOTAL))
            self.cache_position = self.input(CACHE_POSITION, "i64", ())
        else:
            self.source = self.input("encoder_hidden_states", "f32", (texts, SOURCE, self.config.hidden))
            self.mask = self.Expand(self.Constant(value_int=1), self.Shape(self.ids))
        return embedding(self, self.ids, embed)

    def cached(self, name: str, new: Value, heads: int, size: int, window: int | None = None) -> Value:
        """Keys or values [batch, heads, total, size] of past and current tokens, as of `Decoder`; a decoder of the
        growing kind starts without a past."""
        if self.fixed:
            return super().cached(name, new, heads, size, window)
        whole: Value = self.Transpose(self.split_heads(new, heads, size), perm=[0, 2, 1, 3])
        self.present(name, whole)
        return whole

    def distances(self) -> Value:
        """Index of the key less that of the query, i64 [length, total]."""
        keys = self.once("keys", lambda: self._arange(self.Shape(self.mask, start=1, end=2)))
        return self.once("distances", lambda: self.Sub(keys, self._queries()))

    def token_positions(self) -> Value:
        """Indices of this run's tokens, i64 [length]."""
        return self.once("token_positions", lambda: self.Squeeze(self._queries(), [1]))

    def attend_to_itself(self, x: Value, layer: int, name: str, scores: Scores = PLAIN_SCORES) -> Value:
        """Causal self-attention of layer `layer` with the weights ``NAME.{q,k,v,o}``."""
        heads, size = self.config.heads, self.config.head_dim
        q, k, v = (linear(self, x, f"{name}.{part}") for part in "qkv")
        keys, values = (
            self.cached(f"key_values.{layer}.decoder.{kind}", y, heads, size)
            for kind, y in zip(KINDS, (k, v), strict=True)
        )
        queries = self.Transpose(self.split_heads(q, heads, size), perm=[0, 2, 1, 3])
        mask = self.visible() if scores.mask is None else scores.mask
        y = self.Attention(queries, keys, values, mask, scale=scores.scale)
        return linear(self, self.merge_heads(self.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")

    def attend_to_source(self, x: Value, layer: int, name: str, scale: float | None = None) -> Value:
        """Attention of layer `layer` to the encoder's hidden states with the weights ``NAME.{q,k,v,o}``."""
        heads, size = self.config.heads, self.config.head_dim
        texts = self.once("texts", lambda: self.Shape(self.source_mask, start=0, end=1))
        shape = self.once("query_shape", lambda: self.Concat(texts, [-1, heads, size], axis=0))
        queries = self.Transpose(self.Reshape(linear(self, x, f"{name}.q"), shape), perm=[0, 2, 1, 3])
        keys, values = self._source_key_values(layer, name)
        y = self.Attention(queries, keys, values, self._source_visible(), scale=scale)
        whole = self.once("hidden_shape", lambda: self.Concat(self.Shape(self.ids), [heads * size], axis=0))
        return linear(self, self.Reshape(self.Transpose(y, perm=[0, 2, 1, 3]), whole), f"{name}.o")

    def _source_key_values(self, layer: int, name: str) -> tuple[Value, ...]:
        if not self.fixed:
            found = source_key_values(self, self.source, name)
            for kind, value in zip(KINDS, found, strict=True):
                self.present(f"key_values.{layer}.encoder.{kind}", value)
            return found
        shape = (TEXTS, self.config.heads, SOURCE, self.config.head_dim)
        return tuple(self.input(CROSS.format(i=layer, kind=kind), "f32", shape) for kind in KINDS)

    def _source_visible(self) -> Value:
        """Which keys of the source are tokens, bool [texts, 1, 1, source]; exported models have a row for each query,
        as onnxruntime needs it."""
        return self.once("source_visible", self._source_tokens)

    def _source_tokens(self) -> Value:
        tokens: Value = self.Unsqueeze(self.Cast(self.source_mask, to=9), [1, 2])
        if self.fixed:
            return tokens
        batch, source = (self.Shape(self.source_mask, start=axis, end=axis + 1) for axis in (0, 1))
        shape = self.Concat(batch, [1], self.Shape(self.ids, start=1, end=2), source, axis=0)
        whole: Value = self.Expand(tokens, shape)
        return whole


def source_key_values(net: Net, x: Value, name: str) -> tuple[Value, Value]:
    """Keys and values [batch, heads, source, head_dim] of hidden states, with the weights ``NAME.{k,v}``."""
    heads, size = net.config.heads, net.config.head_dim
    keys, values = (
        net.Transpose(net.split_heads(linear(net, x, f"{name}.{part}"), heads, size), perm=[0, 2, 1, 3])
        for part in "kv"
    )
    return keys, values
