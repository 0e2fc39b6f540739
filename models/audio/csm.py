"""CSM (conversational speech model; Sesame 2025): speech of a text, as codes of Mimi.

A backbone reads the text and the frames of codes so far, and predicts the first code of the next frame. The depth
decoder predicts the others from the backbone's hidden state, codebook by codebook.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import (
    HF,
    STATED,
    Architecture,
    Below,
    Config,
    Key,
    Part,
    Row,
    Stored,
    Task,
    Weight,
)
from ...runtime.contract.hyperparameter import COUNT, EVEN, SIZE, Integer
from ...runtime.contract.part_rows import part_config
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.attention import self_attention
from ..layers.audio.codebooks import frame_embeddings
from ..layers.decoder import LENGTH, Decoder
from ..layers.linear import embedding, linear
from ..layers.mlp import gated
from ..layers.moe import matmul_experts
from ..layers.net import Net
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..pipelines.audio.synthesis.synthesis_tasks import run_csm
from ..schema.codec_hyperparameters import CODEC, codec_part
from ..schema.decoder_weights import ATTN_NORM, GATED, MLP_NORM, NORM, attention
from ..schema.hyperparameters import HF_HEAD_DIM, INTERMEDIATE, KV_HEADS, LAYERS, RMS_EPS_5, act, frequency_base
from ..schema.network_hyperparameters import Stated
from ..schema.weight_layout import Permuted

CODEBOOKS = Integer(2, 64)
THETA = 500000.0
HIDDEN, STATE = "last_hidden_state", "backbone_last_hidden_state"
"""The backbone's output, and the depth decoder's input of its last position."""


def rows(context: int) -> tuple[Row, ...]:
    """The hyper-parameters of one of both decoders; `context`: positions by default."""
    return (
        Key("vocab", "vocab_size", (), 2051, COUNT),
        Key("codebooks", "num_codebooks", (), 32, CODEBOOKS),
        Key("context", "max_position_embeddings", (), context, COUNT),
        Key("hidden", "hidden_size", kind=COUNT),
        Key("layers", "num_hidden_layers", kind=LAYERS),
        Key("heads", "num_attention_heads", kind=COUNT),
        KV_HEADS,
        HF_HEAD_DIM,
        Key("rotary", (), (), lambda config: config.head_dim, EVEN),
        INTERMEDIATE,
        RMS_EPS_5,
        frequency_base(THETA),
        Scaling(),
        act("silu"),
    )


DECODER_WEIGHTS = (*ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM)
BACKBONE = Architecture(
    "csm_backbone",
    "CSM backbone",
    (),
    (),
    (
        *rows(2048),
        Key("text_vocab", "text_vocab_size", (), 128256, COUNT),
        Key("end", "codebook_eos_token_id", (), 0, SIZE, at_most=("vocab",)),
        Key("pad", "codebook_pad_token_id", (), 2050, SIZE, at_most=("vocab",)),
        Key("audio_token", "audio_token_id", (), 128002, SIZE, at_most=("text_vocab",)),
        Key("audio_end", "audio_eos_token_id", (), 128003, SIZE, at_most=("text_vocab",)),
    ),
    (
        Weight(
            "embed.weight",
            "model.embed_tokens.embed_audio_tokens.weight",
            shape=("codebooks*vocab", "hidden"),
            optional=True,
        ),
        *DECODER_WEIGHTS,
    ),
    (),
)
DEPTH = "depth"
DEPTH_DECODER = Architecture(
    "csm_depth_decoder",
    "CSM depth decoder",
    ("csm_depth_decoder_model",),
    (),
    (
        *rows(33),
        Key("backbone_hidden", "backbone_hidden_size", kind=COUNT),
        Key("heads_count", (), (), lambda config: config.codebooks - 1),
    ),
    (
        Weight("embed.weight", "model.embed_tokens.weight", shape=("codebooks*vocab", "backbone_hidden")),
        Weight("project.weight", "model.inputs_embeds_projector.weight", shape=("hidden", "backbone_hidden")),
        *DECODER_WEIGHTS,
        Weight(
            "codebook_heads.weight",
            Stored(("codebooks_head.weight",), Permuted((0, 2, 1))),
            shape=("heads_count", "vocab", "hidden"),
        ),
    ),
    (),
    defaults={"csm_depth_decoder_model": {"num_key_value_heads": 2}},
)
KEYS: tuple[Row, ...] = (Stated("architectures", ["CsmForConditionalGeneration"]),)
TEXT, HEAD = "embed_text_tokens", "lm_head"
WEIGHTS = (
    Weight(f"{TEXT}.weight", f"{TEXT}.weight", f"{TEXT}.weight", shape=("text_vocab", "hidden")),
    Weight(f"{HEAD}.weight", f"{HEAD}.weight", f"{HEAD}.weight", shape=("vocab", "hidden")),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """FormatError for decoders of different codebooks."""
    depth = part_config(config, DEPTH)
    for ours, theirs in (("codebooks", "codebooks"), ("vocab", "vocab"), ("hidden", "backbone_hidden")):
        if config.values[ours] != depth.values[theirs]:
            key = next(iter(next(row for row in DEPTH_DECODER.keys if row.name == theirs).keys(HF)))  # type: ignore[attr-defined]
            why = f"the depth decoder has another {key} than the backbone"
            raise FormatError(
                "E-ARCH-KEY",
                config.values.get("path"),
                why,
                expected=config.values[ours],
                found=depth.values[theirs],
                hint=f"Correct it in {STATED[HF]}",
            )


def layers(net: Decoder, x: Value) -> Value:
    """Pre-norm layers, as Llama has them, then a norm."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    return norm(net, x, "norm")


def backbone(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """Hidden states of frames; ``input_ids`` is [batch, length, codebooks + 1], its last column the tokens of text."""
    net = Decoder(graph, config, weights, fixed=fixed)
    net.declare(("batch_size", LENGTH, config.codebooks + 1))
    codes = "embed" if net.has("embed.weight") else f"{DEPTH}.embed"
    net.close(HIDDEN, layers(net, frame_embeddings(net, net.ids, config.codebooks, config.vocab, TEXT, codes)))


def head(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """Logits of the first code of the next frame, of the backbone's hidden states."""
    net = Net(graph, config, weights)
    net.output("logits", linear(net, net.input(HIDDEN, "f32", ("batch_size", config.hidden)), HEAD))


def depth_decoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """Logits of the codes of one frame. Position 0 is the backbone's hidden state, whose id is not read; position k has
    the code of codebook k - 1, and the logits of codebook k. Those of position 0 have no meaning."""
    net = Decoder(graph, part_config(config, DEPTH), weights, fixed=fixed)
    net.scope = f"{DEPTH}."
    net.declare(("batch_size", LENGTH))
    state = net.input(STATE, "f32", ("batch_size", net.config.backbone_hidden))
    before = net.Max(net.Sub(net.positions, 1), net.Constant(value_int=0))
    codes = embedding(net, net.Add(net.ids, net.Mul(before, net.config.vocab)), "embed")
    first = net.Unsqueeze(net.Equal(net.positions, net.Constant(value_int=0)), [2])
    x = layers(net, linear(net, net.Where(first, net.Unsqueeze(state, [1]), codes), "project"))
    tokens = net.Reshape(x, [-1, net.config.hidden])
    logits = matmul_experts(net, tokens, "codebook_heads", net.Reshape(before, [-1, 1]), each=False)
    shape = net.Concat(net.Shape(net.ids), [net.config.vocab], axis=0)
    net.close("logits", net.Reshape(logits, shape))


ARCHITECTURES = (
    Architecture(
        "csm",
        "CSM",
        ("csm",),
        ("csm",),
        KEYS,
        WEIGHTS,
        (Task("text-to-speech", {"backbone": backbone, "lm_head": head, "depth_decoder": depth_decoder}, run_csm),),
        settle=settle,
        prefixes=(),
        ignored=(r"audio_tokens_offsets$",),
        parts={
            "": Part(BACKBONE, "", (Below("backbone_"),)),
            DEPTH: Part(DEPTH_DECODER, "depth_decoder_config", (Below("depth_decoder."),)),
            CODEC: codec_part("codec_config", Below("codec_model.")),
        },
        defaults={"csm": {"num_key_value_heads": 8}},
    ),
)
