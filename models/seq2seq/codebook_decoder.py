"""Decoders of audio codes that attend to an encoder's text (MusicGen, Parler-TTS): rows and layers that they share.

The decoder predicts the codes of all codebooks at once. Codebook k is k frames after the first one (the delay pattern
of Copet et al. 2023, arXiv:2306.05284).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import Config, Key, Part, Row, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, Integer
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.linear import linear
from ..layers.mlp import plain
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..layers.rope import Rotary
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, act, matrix
from ..schema.weight_layout import JOINED
from .decoder import CROSS, KINDS, SOURCE_HIDDEN, CrossDecoder, source_key_values
from .transformer import layer_weights

EPS = 1e-5
"""Epsilon of every norm."""
CODEBOOKS = Integer(1, 64)
"""Number of codebooks; published models have at most 32."""
PROJECTION = "enc_to_dec_proj"
"""The layer between the text's hidden states and a decoder of another width."""
TEXT = "text_encoder"
"""Name of the part that reads the text."""
TEXT_ENCODER = Part("t5_encoder", TEXT)


def decoder_keys(start: int, pad: int) -> tuple[Row, ...]:
    """The hyper-parameters of the decoder; the arguments are defaults: ids of the first code and of padding."""
    return (
        Key("vocab", "vocab_size", kind=COUNT),
        Key("positions", "max_position_embeddings", (), 2048, Integer(1, 1 << 20)),
        Key("hidden", "hidden_size", kind=Integer(4)),
        Key("decoder_layers", "num_hidden_layers", kind=LAYERS),
        Key("heads", "num_attention_heads", kind=COUNT),
        OWN_HEAD_DIM,
        Key("decoder_intermediate", "ffn_dim", kind=COUNT),
        act("gelu", "activation_function"),
        Key("codebooks", "num_codebooks", (), 4, CODEBOOKS),
        Key("embed_rows", (), (), lambda config: config.vocab + 1),
        Key("start", "bos_token_id", (), start, SIZE, at_most=("vocab",)),
        Key("pad", "pad_token_id", (), pad, SIZE, at_most=("vocab",)),
    )


DECODER_WEIGHTS = (
    Weight(
        "embed.weight",
        Stored(("model.decoder.embed_tokens.{e}.weight",), JOINED, "codebooks"),
        shape=("codebooks*embed_rows", "hidden"),
    ),
    *layer_weights("decoder", "decoder_layers", "decoder_intermediate"),
    *matrix("decoder.norm", "model.decoder.layer_norm", None, shape=("hidden",)),
    Weight(
        "head.weight",
        (Stored(("lm_heads.{e}.weight",), JOINED, "codebooks"), "lm_heads.weight"),
        shape=("codebooks*vocab", "hidden"),
    ),
)


def _projects(config: Config, i: int) -> bool:
    return bool(config.values[f"{TEXT}.hidden"] != config.hidden)


PROJECTION_WEIGHTS = (
    Weight(
        f"{PROJECTION}.weight",
        f"{PROJECTION}.weight",
        f"{PROJECTION}.weight",
        shape=("hidden", f"{TEXT}.hidden"),
        when=_projects,
    ),
    Weight(f"{PROJECTION}.bias", f"{PROJECTION}.bias", f"{PROJECTION}.bias", shape=("hidden",), when=_projects),
)


def text_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The encoder's graph. Outputs are ``last_hidden_state`` [texts, source, text hidden], ``encoder_hidden_states``
    [texts, source, hidden], which the decoder reads, zeros for padding, and the decoder's keys and values of them if it
    has a fixed cache."""
    net = Net(graph, config, weights)
    x = add_part(graph, config, weights, TEXT)["last_hidden_state"]
    net.output("last_hidden_state", x)
    if net.has(f"{PROJECTION}.weight"):
        x = linear(net, x, PROJECTION)
    x = net.Mul(x, net.Unsqueeze(net.Cast(graph.values["attention_mask"], to=1), [2]))
    net.output(SOURCE_HIDDEN, x)
    for i in range(config.decoder_layers) if fixed else ():
        for kind, value in zip(KINDS, source_key_values(net, x, f"decoder.layers.{i}.cross"), strict=True):
            net.output(CROSS.format(i=i, kind=kind), value)


def decode(net: CrossDecoder, x: Value, rotary: Rotary | None = None) -> None:
    """Pre-norm layers, a norm, and the heads: logits [batch, length, codebooks, vocabulary] of embeddings `x`."""
    config = net.config
    for i in range(config.decoder_layers):
        name = f"decoder.layers.{i}"
        y = layer_norm(net, x, f"{name}.attn_norm", EPS)
        x = net.Add(x, net.attend_to_itself(y, i, f"{name}.attn", rotary=rotary))
        y = layer_norm(net, x, f"{name}.cross_norm", EPS)
        x = net.Add(x, net.attend_to_source(y, i, f"{name}.cross", rotary=rotary))
        x = net.Add(x, plain(net, layer_norm(net, x, f"{name}.mlp_norm", EPS), f"{name}.mlp", config.act))
    shape = [0, 0, config.codebooks, config.vocab]
    net.end(layer_norm(net, x, "decoder.norm", EPS), None, change=lambda logits: net.Reshape(logits, shape))
