"""The encoder-decoder transformer of Vaswani et al. 2017 (arXiv:1706.03762): rows and layers that families share.

Families differ in the positions, in where norms stand, and in what is added to embeddings and logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import HF, Config, Weight
from ...runtime.contract.hyperparameter import Integer
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder
from ..layers.linear import embedding, own_embedding
from ..layers.mlp import plain
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..schema.hyperparameters import matrix
from .cross_encoder import CrossEncoder
from .decoder import CrossDecoder
from .text_heads import ShiftedDecoder

EPS = 1e-5
"""Epsilon of norms."""
POSITIONS = Integer(1, 1 << 14)
"""Number of positions; those of published models are fewer than 2,000."""


@dataclass(frozen=True)
class SameHeads:
    """Hyper-parameter: heads of the decoder's attention, which are those of the encoder's."""

    name: str = "decoder_heads"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        said = source.get("decoder_attention_heads", config.heads)
        if said != config.heads:
            why = "encoder and decoder have different numbers of heads"
            raise UnsupportedError("E-ARCH-HEADS", config.path, why, expected=config.heads, found=said)
        return int(said)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"decoder_attention_heads": config.decoder_heads} if names == HF else {}


def layer_weights(side: str, layers: str, intermediate: str) -> tuple[Weight, ...]:
    """Bindings of the layers of the encoder or decoder: `side`."""
    name, hf, square = f"{side}.layers.{{i}}.", f"model.{side}.layers.{{i}}.", ("hidden", "hidden")
    blocks = [("attn", "self_attn"), *([("cross", "encoder_attn")] if side == "decoder" else [])]
    found = [
        row
        for block, theirs in blocks
        for part, projection in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj"))
        for row in matrix(f"{name}{block}.{part}", f"{hf}{theirs}.{projection}", None, shape=square)
    ]
    for block, theirs in (*blocks, ("mlp", "final")):
        found += matrix(f"{name}{block}_norm", f"{hf}{theirs}_layer_norm", None, shape=("hidden",))
    found += matrix(f"{name}mlp.up", f"{hf}fc1", None, shape=(intermediate, "hidden"))
    found += matrix(f"{name}mlp.down", f"{hf}fc2", None, shape=("hidden", intermediate))
    return tuple(replace(row, layers=layers) for row in found)


def norm_weights(hf: str, name: str) -> tuple[Weight, ...]:
    """Bindings of a norm of the encoder and of the decoder."""
    return tuple(
        row
        for side in ("encoder", "decoder")
        for row in matrix(f"{side}.{name}", f"model.{side}.{hf}", None, shape=("hidden",))
    )


def head_weights(hf: str, rows: str) -> tuple[Weight, ...]:
    """Bindings of a head of `rows` tokens: stored where it is not tied, or differs from the embedding that it is tied
    to."""
    stored = Weight("head.weight", hf, shape=(rows, "hidden"), when=lambda config, i: not config.tied)
    tied = replace(stored, when=lambda config, i: bool(config.tied), optional=True, repeats="embed.weight")
    return stored, tied


def fairseq_sinusoids(config: Config) -> np.ndarray:
    """Sines, then cosines, of the positions with the rates of tensor2tensor, f32 [padded_rows, hidden]; zeros for
    padding."""
    half = config.hidden // 2
    exponents = np.arange(half, dtype=np.float32) * np.float32(-math.log(10000) / max(half - 1, 1))
    rates = np.exp(exponents, dtype=np.float64).astype(np.float32)
    angles = np.arange(config.padded_rows, dtype=np.float32)[:, None] * rates
    found = np.zeros((config.padded_rows, config.hidden), np.float32)
    found[:, : 2 * half] = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    found[config.pad] = 0
    return found


class Family:
    """Structure of the layers of one family.

    Args:
        pre_norm: whether norms stand before attention and feed-forward networks, instead of after the sum.
        offset: row of the positions that the first token has.
        padded: whether positions are counted past the padding token, whose id is its own position, instead.
        eps: what norms add to variances.
    """

    def __init__(self, *, pre_norm: bool, offset: int = 0, padded: bool = False, eps: float = EPS) -> None:
        self.pre_norm, self.offset, self.padded, self.eps = pre_norm, offset, padded, eps

    def encode(self, net: Encoder) -> Value:
        """The encoder's hidden states."""
        net.begin()
        return self.read(net, embedding(net, net.ids, own_embedding(net, "encoder")))

    def read(self, net: Encoder, x: Value) -> Value:
        """The encoder's hidden states, of token embeddings."""
        return self.encoded(net, self._embedded(net, x, self._rows(net, net.positions()), "encoder"))

    def encoded(self, net: Encoder, x: Value) -> Value:
        """The encoder's hidden states, of embeddings with their positions."""
        for i in range(net.config.layers):
            name = f"encoder.layers.{i}"
            x = self._block(net, x, f"{name}.attn", net.self_attention)
            x = self._block(net, x, f"{name}.mlp", partial(plain, net, kind=net.config.act))
        return self._normed(net, x, "encoder.norm")

    def decode(self, net: CrossDecoder) -> None:
        """The decoder's logits."""
        embed = own_embedding(net, "decoder")
        tied = "embed" if net.config.values.get("shared", True) else embed
        net.end(self.decoded(net, net.begin(embed)), None, tied=tied, change=added(net))

    def decoded(self, net: CrossDecoder | CrossEncoder | ShiftedDecoder, x: Value, side: str = "decoder") -> Value:
        """The hidden states of layers that attend to a source, of token embeddings; `side`: how names of weights
        begin."""
        config = net.config
        x = self._embedded(net, x, self._rows(net, net.token_positions()), side)
        for i in range(config.decoder_layers):
            name = f"{side}.layers.{i}"
            x = self._block(net, x, f"{name}.attn", partial(net.attend_to_itself, layer=i))
            x = self._block(net, x, f"{name}.cross", partial(net.attend_to_source, layer=i))
            x = self._block(net, x, f"{name}.mlp", partial(plain, net, kind=config.act))
        return self._normed(net, x, f"{side}.norm")

    def _rows(self, net: Encoder | CrossDecoder, places: Value) -> Value:
        """Rows of the positions, i64 [length] or [batch, length], of tokens at `places`, i64 [length]."""
        if not self.padded:
            rows: Value = net.Add(places, self.offset) if self.offset else places
            return rows
        pad = net.Constant(value_int=net.config.pad)
        padding = net.Cast(net.Equal(net.ids, pad), to=7)
        counts = net.Sub(net.Add(places, 1), net.CumSum(padding, net.Constant(value_int=1)))
        return net.Add(net.Mul(counts, net.Sub(1, padding)), pad)

    def _embedded(self, net: Net, x: Value, places: Value, side: str) -> Value:
        """Tokens and positions, normalized where the model does."""
        x = net.Mul(x, math.sqrt(net.config.hidden)) if net.config.scaled else x
        x = net.Add(x, embedding(net, places, f"{side}.positions"))
        return self._normed(net, x, f"{side}.embed_norm")

    def _normed(self, net: Net, x: Value, name: str) -> Value:
        return layer_norm(net, x, name, self.eps) if net.has(f"{name}.weight") else x

    def _block(self, net: Net, x: Value, name: str, block: Callable[..., Value]) -> Value:
        """The block `name` of weights, added to its input, with a norm before it or after the sum."""
        if self.pre_norm:
            value: Value = net.Add(x, block(layer_norm(net, x, f"{name}_norm", self.eps), name=name))
            return value
        return layer_norm(net, net.Add(x, block(x, name=name)), f"{name}_norm", self.eps)


OFFSET = 2
"""Rows of an embedding of positions before that of the first token, in models of fairseq."""
POST_NORM = Family(pre_norm=False, offset=OFFSET)
"""The layers of BART."""


def added(net: Net) -> Callable[[Value], Value] | None:
    """A function that adds the bias of the logits, None without one."""
    return (lambda logits: net.Add(logits, net.vector("logits.bias"))) if net.has("logits.bias") else None
