"""Encoders of texts whose layers attend to a source too, such as a picture (BLIP's image-grounded text encoder)."""

from __future__ import annotations

from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder
from ..layers.linear import linear
from .decoder import source_key_values


class CrossEncoder(Encoder):
    """A net with an encoder's inputs; arguments as of `Net`.

    Attributes:
        source: hidden states that the layers attend to, f32 [batch, source, width].
    """

    source: Value

    def attend_to_itself(self, x: Value, layer: int, name: str) -> Value:
        """Attention of every token to every other one with the weights ``NAME.{q,k,v,o}``."""
        return self.self_attention(x, name)

    def attend_to_source(self, x: Value, layer: int, name: str) -> Value:
        """Attention to the source with the weights ``NAME.{q,k,v,o}``."""
        keys, values = source_key_values(self, self.source, name)
        y = self.Attention(self.heads(linear(self, x, f"{name}.q"), self.config.heads), keys, values)
        return linear(self, self.merge_heads(self.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")
