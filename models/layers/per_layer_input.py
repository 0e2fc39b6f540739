"""Per-layer embeddings of Gemma 3n and 4: every layer gets a small embedding of the token next to the hidden state."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import counted
from ...runtime.contract.architecture import Config, Key, Stored, Weight, Whole
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..schema.hyperparameters import matrix
from ..schema.weight_layout import take_rows
from .decoder import Decoder
from .linear import embedding, linear
from .mlp import ACTIVATIONS
from .norm import norm

KEYS = (
    Key("layer_size", "hidden_size_per_layer_input", "embedding_length_per_layer_input", 256, null=0),
    Key("layer_vocab", "vocab_size_per_layer_input", (), lambda config: config.vocab, at_most=("vocab",)),
)


@dataclass(frozen=True)
class FirstTokens(Whole):
    """Embeddings of the first ``layer_vocab`` tokens; the graph has those of all, where the others have the first
    token's."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        stored, count = parts[0].shape[0], config.vocab
        if stored != config.layer_vocab or stored > count:
            raise ValueError(f"a tensor {list(parts[0].shape)} does not have {counted(config.layer_vocab, 'row')}")
        if stored == count:
            return parts[0]
        return take_rows(parts[0], np.concatenate([np.arange(stored), np.zeros(count - stored, np.int64)]))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole[: config.layer_vocab]]


def present(config: Config, i: int) -> bool:
    """Whether the model has per-layer embeddings."""
    return bool(config.layer_size > 0)


LAYER = "model.layers.{i}."
WEIGHTS = (
    Weight("layer_embed.weight", Stored(("model.embed_tokens_per_layer.weight",), FirstTokens()),
           "per_layer_token_embd.weight", shape=("vocab", "layers*layer_size"), when=present),
    *matrix("layer_proj", "model.per_layer_model_projection", "per_layer_model_proj",
            shape=("layers*layer_size", "hidden"), when=present),
    *matrix("layer_norm", "model.per_layer_projection_norm", "per_layer_proj_norm", shape=("layer_size",),
            when=present),
    *matrix("layers.{i}.input_gate", f"{LAYER}per_layer_input_gate", "blk.{i}.inp_gate",
            shape=("layer_size", "hidden"), when=present),
    *matrix("layers.{i}.input_proj", f"{LAYER}per_layer_projection", "blk.{i}.proj", shape=("hidden", "layer_size"),
            when=present),
    *matrix("layers.{i}.after_input", f"{LAYER}post_per_layer_input_norm", "blk.{i}.post_norm", shape=("hidden",),
            when=present),
)  # fmt: skip


def layer_inputs(net: Decoder, x: Value) -> list[Value]:
    """The input of each layer, [batch, length, layer_size], for embeddings `x`."""
    config = net.config
    size, count = config.layer_size, config.layers
    stated = net.Mul(embedding(net, net.token_ids(), "layer_embed"), math.sqrt(size))
    made = net.split_heads(net.Mul(linear(net, x, "layer_proj"), config.hidden**-0.5), count, size)
    both = net.Add(norm(net, made, "layer_norm"), net.split_heads(stated, count, size))
    pieces = net.split(net.Mul(both, 2**-0.5), [1] * count, 2) if count > 1 else [net.Mul(both, 2**-0.5)]
    return [net.Squeeze(piece, [2]) for piece in pieces]


def from_layer_input(net: Decoder, x: Value, given: Value, i: int) -> Value:
    """The update of the hidden state by the input `given` of layer `i`: a gated projection of it, normalized."""
    gate = ACTIVATIONS[net.config.act](net, linear(net, x, f"layers.{i}.input_gate"))
    return norm(net, linear(net, net.Mul(gate, given), f"layers.{i}.input_proj"), f"layers.{i}.after_input")
