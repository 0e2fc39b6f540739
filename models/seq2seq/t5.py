"""T5 (Raffel et al. 2019, arXiv:1910.10683), with a relative position bias instead of positions, and its relatives:
T5 1.1, Flan-T5, CoEdit, UL2, MADLAD-400, mT5, UMT5 and encoders made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import (
    FEATURE_EXTRACTION,
    GGUF,
    HF,
    OWN_HEAD,
    Architecture,
    Config,
    Key,
    Row,
    Weight,
)
from ...runtime.contract.hyperparameter import (
    COUNT,
    NOT_NEGATIVE,
    SIZE,
    Integer,
    Listed,
    ParameterError,
    checked,
    flag,
    shown,
    word,
)
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.attention import Scores
from ..layers.encoder import Encoder, hidden_states
from ..layers.linear import embedding, own_embedding
from ..layers.mlp import gated, plain
from ..layers.net import Net
from ..layers.norm import norm
from ..layers.relative_position import position_bias
from ..pipelines.encoder_tasks import TOKENS, encoder_component, encoder_tasks
from ..schema.activation import activation
from ..schema.encoder_hyperparameters import CLASSES_OF_TASKS
from ..schema.hyperparameters import LAYERS, Fixed, Vocabulary
from .decoder import CrossDecoder
from .tasks import TEXT_TO_TEXT, encoder_decoder_task, encoder_task
from .text_heads import ShiftedDecoder, head_tasks, label_rows

CLASSES = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
"""Model type -> prefix of the names of transformers' classes."""
MT5 = "mt5"
"""The model type whose decoder's hidden states are never scaled."""
UMT5 = "umt5"
"""The model type whose layers have position biases of their own."""
ENCODER_CLASSES = ("EncoderModel", "ForTokenClassification")
"""Suffixes of transformers' classes without a decoder."""
RELU, GATED_GELU, GATED = "relu", "gated-gelu", "gated-"
"""Feed-forward networks, by their names in config.json; GGUF files have the first two."""


@dataclass(frozen=True)
class ModelType:
    """Hyper-parameter: the model type. A GGUF file does not state it; `settle` finds it in the weights."""

    name: str = "model_type"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        return str(source["model_type"]) if names == HF else "t5"

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"model_type": config.model_type} if names == HF else {}


@dataclass(frozen=True)
class T5Task:
    """Hyper-parameter: the name of the model's task, by its class in config.json.

    Attributes:
        default: the task where config.json names no other.
        end: how the class of the task ends.
    """

    default: str
    end: str
    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names != HF:
            return self.default
        (kind, *_) = checked("architectures", source.get("architectures") or [""], Listed(word, 1))
        return next((task for end, task in CLASSES_OF_TASKS if kind.endswith(end)), self.default)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"architectures": [CLASSES[config.model_type] + self.end]} if names == HF else {}


@dataclass(frozen=True)
class FeedForward:
    """Hyper-parameter: the feed-forward network, such as ``relu`` or ``gated-gelu``. A GGUF file does not state it;
    `settle` finds it in the weights."""

    name: str = "feed_forward"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str | None:
        if names != HF:
            return None
        usual = RELU if config.model_type == "t5" else GATED_GELU
        said: str = checked(FEED_FORWARD_KEY, source.get(FEED_FORWARD_KEY) or usual, word)
        try:
            activation(said.removeprefix(GATED))
        except ValueError as error:
            raise ParameterError(FEED_FORWARD_KEY, f"{shown(said)} has an unknown activation") from error
        return said

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {FEED_FORWARD_KEY: config.feed_forward}
        if config.feed_forward not in (RELU, GATED_GELU):
            raise UnsupportedError(
                "E-ARCH-GGUF",
                None,
                f"GGUF files of this architecture cannot store {FEED_FORWARD_KEY}",
                expected=f"{RELU} or {GATED_GELU}",
                found=config.feed_forward,
            )
        return {}


FEED_FORWARD_KEY, SCALED_KEY = "feed_forward_proj", "scale_decoder_outputs"


@dataclass(frozen=True)
class Scaled:
    """Hyper-parameter: whether the decoder's hidden states are divided by sqrt(hidden) before the head. A GGUF file
    does not state it; `settle` finds it in the weights."""

    name: str = "scaled"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> bool:
        if names != HF:
            return True
        if config.model_type == MT5:
            return False
        if source.get(SCALED_KEY) is not None:  # transformers 5 writes it
            return bool(checked(SCALED_KEY, source[SCALED_KEY], flag))
        return source.get("tie_word_embeddings") is not False

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {}


def rows(task: str, end: str) -> tuple[Row, ...]:
    """The hyper-parameters of models for a task, whose classes end with `end`."""
    return (
        ModelType(),
        T5Task(task, end),
        Vocabulary(),
        Key("trained_context", "n_positions", "context_length", 512, COUNT),
        Key("hidden", "d_model", "embedding_length", kind=COUNT),
        Key("layers", "num_layers", "block_count", kind=LAYERS),
        Key("heads", "num_heads", "attention.head_count", kind=COUNT),
        Key("head_dim", "d_kv", "attention.key_length", kind=COUNT),
        Key("value_dim", (), "attention.value_length", lambda config: config.head_dim, COUNT, at_most=("head_dim",)),
        Key("intermediate", "d_ff", "feed_forward_length", kind=COUNT),
        Key("eps", "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-6, NOT_NEGATIVE),
        Key("layer_eps", (), "attention.layer_norm_epsilon", lambda config: config.eps, NOT_NEGATIVE),
        Key(
            "buckets",
            "relative_attention_num_buckets",
            "attention.relative_buckets_count",
            32,
            Integer(4, 256, 4),
            at_most=("farthest",),
        ),
        Fixed("farthest", "relative_attention_max_distance", 128, Integer(8, 8192)),
        FeedForward(),
        *label_rows(1),
    )


KEYS = (
    *rows(TEXT_TO_TEXT, "ForConditionalGeneration"),
    Key("decoder_layers", "num_decoder_layers", "decoder_block_count", lambda config: config.layers, LAYERS),
    Key("decoder_start", "decoder_start_token_id", "decoder_start_token_id", 0, SIZE, at_most=("vocab",)),
    Scaled(),
)


def attention(name: str, hf: str, gguf: str, layers: str) -> tuple[Weight, ...]:
    """Bindings of the query, key, value and output projections."""
    wide, tall = ("hidden", "heads*head_dim"), ("heads*head_dim", "hidden")
    return tuple(
        Weight(f"{name}.{part}.weight", f"{hf}.{part}.weight", f"{gguf}_{part}.weight", shape=shape, layers=layers)
        for part, shape in (("q", tall), ("k", tall), ("v", tall), ("o", wide))
    )


def biases(name: str, hf: str, gguf: str, layers: str) -> tuple[Weight, ...]:
    """Bindings of the position biases: of the first layer, or of all."""
    shape = ("buckets", "heads")

    def stated(config: Config, i: int) -> bool:
        return i == 0 or config.model_type == UMT5

    return (
        Weight(name, hf, gguf, shape=shape, layers=layers, when=stated),
        Weight(
            name,
            (),
            gguf,
            shape=shape,
            layers=layers,
            when=lambda config, i: config.names == GGUF and not stated(config, i),
            optional=True,
        ),
    )


def feed_forward(name: str, hf: str, gguf: str, layers: str) -> tuple[Weight, ...]:
    """Bindings of the feed-forward network, gated or not. Whether that of a GGUF file is gated is not known before the
    weights are bound."""
    shape = ("intermediate", "hidden")

    def gates(config: Config, i: int) -> bool:
        return config.feed_forward is None or is_gated(config)

    return (
        Weight(
            f"{name}.gate.weight",
            f"{hf}.wi_0.weight",
            f"{gguf}_gate.weight",
            shape=shape,
            layers=layers,
            when=lambda config, i: config.feed_forward is not None and is_gated(config),
        ),
        Weight(
            f"{name}.gate.weight",
            (),
            f"{gguf}_gate.weight",
            shape=shape,
            layers=layers,
            when=lambda config, i: config.feed_forward is None,
            optional=True,
        ),
        Weight(f"{name}.up.weight", f"{hf}.wi_1.weight", f"{gguf}_up.weight", shape=shape, layers=layers, when=gates),
        Weight(
            f"{name}.up.weight",
            f"{hf}.wi.weight",
            f"{gguf}_up.weight",
            shape=shape,
            layers=layers,
            when=lambda config, i: not gates(config, i),
        ),
        Weight(
            f"{name}.down.weight", f"{hf}.wo.weight", f"{gguf}_down.weight", shape=("hidden", "intermediate"),
            layers=layers,
        ),
    )  # fmt: skip


def own_table(side: str) -> Weight:
    """Binding of the token embedding of the encoder or decoder, where it is not that of both."""
    hf, shape = f"{side}.embed_tokens.weight", ("vocab", "hidden")
    return Weight(f"{side}.embed.weight", hf, shape=shape, optional=True, repeats="embed.weight")


def norm_weight(name: str, hf: str, gguf: str, layers: str = "layers") -> Weight:
    """Binding of a norm."""
    return Weight(f"{name}.weight", f"{hf}.weight", f"{gguf}.weight", shape=("hidden",), layers=layers)


BIAS = "SelfAttention.relative_attention_bias.weight"
ENCODER_BLOCK, DECODER_BLOCK = "encoder.block.{i}.layer.", "decoder.block.{i}.layer."
ENCODER_NAME, DECODER_NAME = "encoder.layers.{i}.", "decoder.layers.{i}."
ENCODER_WEIGHTS = (
    Weight(
        "embed.weight",
        ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"),
        "token_embd.weight",
        shape=("vocab", "hidden"),
    ),
    own_table("encoder"),
    *biases(f"{ENCODER_NAME}bias.weight", f"{ENCODER_BLOCK}0.{BIAS}", "enc.blk.{i}.attn_rel_b.weight", "layers"),
    norm_weight(f"{ENCODER_NAME}attn_norm", f"{ENCODER_BLOCK}0.layer_norm", "enc.blk.{i}.attn_norm"),
    *attention(f"{ENCODER_NAME}attn", f"{ENCODER_BLOCK}0.SelfAttention", "enc.blk.{i}.attn", "layers"),
    norm_weight(f"{ENCODER_NAME}mlp_norm", f"{ENCODER_BLOCK}1.layer_norm", "enc.blk.{i}.ffn_norm"),
    *feed_forward(f"{ENCODER_NAME}mlp", f"{ENCODER_BLOCK}1.DenseReluDense", "enc.blk.{i}.ffn", "layers"),
    norm_weight("encoder.norm", "encoder.final_layer_norm", "enc.output_norm"),
)
SIDE = "decoder_layers"
WEIGHTS = (
    *ENCODER_WEIGHTS,
    own_table("decoder"),
    *biases(f"{DECODER_NAME}bias.weight", f"{DECODER_BLOCK}0.{BIAS}", "dec.blk.{i}.attn_rel_b.weight", SIDE),
    norm_weight(f"{DECODER_NAME}attn_norm", f"{DECODER_BLOCK}0.layer_norm", "dec.blk.{i}.attn_norm", SIDE),
    *attention(f"{DECODER_NAME}attn", f"{DECODER_BLOCK}0.SelfAttention", "dec.blk.{i}.attn", SIDE),
    norm_weight(f"{DECODER_NAME}cross_norm", f"{DECODER_BLOCK}1.layer_norm", "dec.blk.{i}.cross_attn_norm", SIDE),
    *attention(f"{DECODER_NAME}cross", f"{DECODER_BLOCK}1.EncDecAttention", "dec.blk.{i}.cross_attn", SIDE),
    norm_weight(f"{DECODER_NAME}mlp_norm", f"{DECODER_BLOCK}2.layer_norm", "dec.blk.{i}.ffn_norm", SIDE),
    *feed_forward(f"{DECODER_NAME}mlp", f"{DECODER_BLOCK}2.DenseReluDense", "dec.blk.{i}.ffn", SIDE),
    norm_weight("decoder.norm", "decoder.final_layer_norm", "dec.output_norm"),
    Weight("head.weight", "lm_head.weight", "output.weight", shape=("vocab", "hidden"), optional=True),
)


def is_gated(config: Config) -> bool:
    """Whether the feed-forward network has a gate."""
    return str(config.feed_forward).startswith(GATED)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Find in the weights of a GGUF file what it does not state. A head that repeats the embedding, as old files of T5
    have it, is left out."""
    head, embed = weights.get("head.weight"), weights["embed.weight"]
    config.values[OWN_HEAD] = None  # transformers ties a missing head whatever config.json states
    if config.names == GGUF:
        config.values["feed_forward"] = GATED_GELU if "encoder.layers.0.mlp.gate.weight" in weights else RELU
        if "encoder.layers.1.bias.weight" in weights:
            config.values["model_type"] = UMT5
        config.values["scaled"] = head is None
    elif head is not None and config.model_type == "t5" and config.scaled and _same(head, embed):
        del weights["head.weight"]


def _same(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two tensors have the same dtype and elements."""
    return one.dtype is other.dtype and one.shape == other.shape and bytes(one.raw()) == bytes(other.raw())


def bias_of(net: Net, name: str, i: int) -> str:
    """The position bias of layer `i`: its own, or that of the first layer."""
    return f"{name}.layers.{i if net.has(f'{name}.layers.{i}.bias.weight') else 0}.bias"


def mlp(net: Net, x: Value, name: str) -> Value:
    """The feed-forward network."""
    kind = net.config.feed_forward
    if is_gated(net.config):
        # transformers takes gated-gelu for the gated network of T5 1.1, which has the approximate GELU
        return gated(net, x, name, "gelu_tanh" if kind == GATED_GELU else activation(kind.removeprefix(GATED)))
    return plain(net, x, name, activation(kind))


def encode(net: Encoder) -> Value:
    """Embeddings, then pre-norm layers, then a norm."""
    net.begin()
    x = embedding(net, net.ids, own_embedding(net, "encoder"))
    for i in range(net.config.layers):
        name = f"encoder.layers.{i}"
        mask = _encoder_scores(net, bias_of(net, "encoder", i))
        x = net.Add(x, net.self_attention(norm(net, x, f"{name}.attn_norm"), f"{name}.attn", mask, scale=1.0))
        x = net.Add(x, mlp(net, norm(net, x, f"{name}.mlp_norm"), f"{name}.mlp"))
    return norm(net, x, "encoder.norm")


def _encoder_scores(net: Encoder, bias: str) -> Value:
    """The bias of the layers' scores, f32 [batch, heads, length, length]."""

    def made() -> Value:
        distance = net.once("distances", net.distances)
        value: Value = net.Add(position_bias(net, distance, bias, net.config.farthest), net.hidden_scores())
        return value

    found: Value = net.once(bias, made)
    return found


def decode(net: CrossDecoder) -> None:
    """Embeddings, then pre-norm layers, then a norm and the head, which may be the embedding."""
    x = decoded(net, net.begin(own_embedding(net, "decoder")))
    net.end(net.Mul(x, net.config.hidden**-0.5) if net.config.scaled else x, None)


def decoded(net: CrossDecoder | ShiftedDecoder, x: Value) -> Value:
    """The hidden states of the decoder: pre-norm layers, then a norm."""
    for i in range(net.config.decoder_layers):
        name = f"decoder.layers.{i}"
        scores = Scores(_decoder_scores(net, bias_of(net, "decoder", i)), 1.0)
        x = net.Add(x, net.attend_to_itself(norm(net, x, f"{name}.attn_norm"), i, f"{name}.attn", scores))
        x = net.Add(x, net.attend_to_source(norm(net, x, f"{name}.cross_norm"), i, f"{name}.cross", 1.0))
        x = net.Add(x, mlp(net, norm(net, x, f"{name}.mlp_norm"), f"{name}.mlp"))
    return norm(net, x, "decoder.norm")


def _decoder_scores(net: CrossDecoder | ShiftedDecoder, bias: str) -> Value:
    """As `_encoder_scores`, f32 [batch, heads, length, total]."""

    def made() -> Value:
        by_row = isinstance(net, CrossDecoder) and net.fixed
        added = position_bias(net, net.distances(), bias, net.config.farthest, both_ways=False, by_row=by_row)
        value: Value = net.Where(net.visible(), added, -math.inf)
        return value

    found: Value = net.once(bias, made)
    return found


def accepts_encoder(source: Mapping[str, Any]) -> bool:
    """Whether a configuration is that of an encoder without a decoder."""
    classes = source.get("architectures")
    alone = isinstance(classes, list) and any(str(kind).endswith(ENCODER_CLASSES) for kind in classes[:1])
    return alone or "model_type" not in source


PREFIXES = ("transformer.",)
"""Prefix of classifiers' weights."""
IGNORED = (r"embed_tokens\.weight$", r"EncDecAttention\.relative_attention_bias\.weight$", r"cross_attn_rel_b\.weight$")
ARCHITECTURES = (
    Architecture(
        "t5",
        "T5, mT5, UMT5",
        tuple(CLASSES),
        ("t5",),
        KEYS,
        WEIGHTS,
        (
            encoder_decoder_task(encode, decode),
            encoder_task(encode, ("decoder.", "head.")),
            *head_tasks(encode, decoded),
        ),
        accepts=lambda source: "model_type" not in source or not accepts_encoder(source),
        settle=settle,
        prefixes=PREFIXES,
        ignored=IGNORED,
        tied=True,
        wide_activations=True,
    ),
    Architecture(
        "t5_encoder",
        "T5 encoder",
        tuple(CLASSES),
        ("t5encoder",),
        rows(FEATURE_EXTRACTION, "EncoderModel"),
        ENCODER_WEIGHTS,
        (encoder_task(encode), *encoder_tasks(encode, (TOKENS,))),
        accepts=accepts_encoder,
        settle=settle,
        prefixes=PREFIXES,
        ignored=IGNORED,
        tied=True,
        wide_activations=True,
        component=encoder_component(encode, hidden_states),
    ),
)
