"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): pre-norm layers with rotary positions, gated feed-forward
networks, and attention to neighbours only in most layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Choice, Integer, checked
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, output_masked
from ..layers.linear import embedding, linear
from ..layers.mlp import ACTIVATIONS, gated_fused
from ..layers.rope import Scaling, rotaries
from ..pipelines.encoder_tasks import FEATURES, Head, encoder_tasks, sequence_head
from ..schema.activation import activation
from ..schema.encoder_hyperparameters import ENCODER, FILL_MASK, TOKEN_CLASSIFICATION, UNSCALED, of_class, settle_gguf
from ..schema.encoder_weights import CLASSIFIER, GGUF_CLASSIFIER, own_head
from ..schema.hyperparameters import DOUBLE, FREQUENCY_BASE, INTERMEDIATE, PATTERN, TOKENS, act, matrix
from ..schema.rope.stated_parameters import FULL_LAYERS, FrequencyBase, RopeSection

POOLING_KEY = "classifier.pooling_type"
POOLINGS = {1: "mean", 2: "cls"}
"""Values of llama.cpp's pooling types."""


@dataclass(frozen=True)
class ClassifierPooling:
    """Hyper-parameter: what a classifier reads, the first token (``cls``) or the mean of all."""

    name: str = "pooling"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names == HF:
            return checked("classifier_pooling", source.get("classifier_pooling", "cls"), Choice(("cls", "mean")))
        kind = checked(POOLING_KEY, source.get(POOLING_KEY, 1), Integer(1, 2))
        return POOLINGS[kind]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"classifier_pooling": config.pooling}
        return {POOLING_KEY: next(kind for kind, name in POOLINGS.items() if name == config.pooling)}


SLIDING = RopeSection("sliding_attention")
KEYS = (
    *(row for row in ENCODER if row.name != "eps"),
    Key("eps", "norm_eps", "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE),
    INTERMEDIATE,
    DOUBLE,
    act("gelu", "hidden_activation"),
    Key("period", "global_attn_every_n_layers", PATTERN, 3, COUNT),
    Key("window", "local_attention", "attention.sliding_window", 128, COUNT),
    FrequencyBase("theta", "global_rope_theta", "rope.freq_base", 160000.0, FREQUENCY_BASE, section=FULL_LAYERS),
    FrequencyBase("local_theta", "local_rope_theta", "rope.freq_base_swa", 10000.0, FREQUENCY_BASE, section=SLIDING),
    Scaling(section=FULL_LAYERS),
    Scaling("local_scaling", SLIDING, gguf_keys=None),
    ClassifierPooling(),
    Key("head_act", "classifier_activation", (), "gelu", activation),
    Key("projected", (), (), lambda config: 3 * config.hidden),
    TOKENS,
    UNSCALED,
)
LAYER, BLOCK, NAME = "model.layers.{i}.", "blk.{i}.", "layers.{i}."
SQUARE, WIDE = ("hidden", "hidden"), ("double", "hidden")


def unbiased(name: str, hf: str, gguf: str, **options: Any) -> tuple[Weight, Weight]:
    """Bindings of a layer whose bias most models lack; GGUF files do not store it."""
    weight, bias = matrix(name, hf, gguf, **options)
    return weight, replace(bias, gguf=())


def norm(name: str, hf: str, gguf: str, **options: Any) -> tuple[Weight, Weight]:
    """Bindings of a layer norm."""
    return unbiased(name, hf, gguf, shape=("hidden",), **options)


WEIGHTS = (
    *matrix("embed", "model.embeddings.tok_embeddings", "token_embd", shape=("vocab", "hidden"))[:1],
    *norm("embed_norm", "model.embeddings.norm", "token_embd_norm"),
    *norm(f"{NAME}attn_norm", f"{LAYER}attn_norm", f"{BLOCK}attn_norm", when=lambda config, i: i > 0),
    *unbiased(f"{NAME}attn.qkv", f"{LAYER}attn.Wqkv", f"{BLOCK}attn_qkv", shape=("projected", "hidden")),
    *unbiased(f"{NAME}attn.o", f"{LAYER}attn.Wo", f"{BLOCK}attn_output", shape=SQUARE),
    *norm(f"{NAME}mlp_norm", f"{LAYER}mlp_norm", f"{BLOCK}ffn_norm"),
    *unbiased(f"{NAME}mlp.both", f"{LAYER}mlp.Wi", f"{BLOCK}ffn_up", shape=WIDE),
    *unbiased(f"{NAME}mlp.down", f"{LAYER}mlp.Wo", f"{BLOCK}ffn_down", shape=("hidden", "intermediate")),
    *norm("norm", "model.final_norm", "output_norm"),
    *matrix("lm.dense", (), "cls", shape=SQUARE, optional=True),
    *matrix("lm.norm", (), "cls.norm", shape=("hidden",), optional=True),
    *GGUF_CLASSIFIER,
)
DENSE = (
    *matrix("lm.dense", "head.dense", None, shape=SQUARE),
    *matrix("lm.norm", "head.norm", None, shape=("hidden",)),
)
LM_HEAD = (*DENSE, own_head("decoder.weight"), Weight("lm.bias", "decoder.bias", shape=("vocab",), optional=True))


def build(net: Encoder) -> Value:
    """Pre-norm layers; every `period`-th attends to all tokens, the others to half a window on each side."""
    config = net.config
    net.begin()
    x = net.norm(embedding(net, net.ids, "embed"), "embed_norm")
    near = net.And(net.visible(), net.LessOrEqual(net.Abs(net.distances()), [config.window // 2]))
    near = net.Or(near, net.Equal(net.distances(), [0]))
    whole, local = rotaries(config)
    for i in range(config.layers):
        everywhere = i % config.period == 0
        y = net.norm(x, f"layers.{i}.attn_norm") if i else x
        sight, rotary = (None, whole) if everywhere else (near, local)
        x = net.Add(x, net.self_attention(y, f"layers.{i}.attn", sight, rotary))
        y = net.norm(x, f"layers.{i}.mlp_norm")
        x = net.Add(x, gated_fused(net, y, f"layers.{i}.mlp", config.act, config.intermediate))
    return net.norm(x, "norm")


def dense(net: Encoder, x: Value) -> Value:
    """The layer between the hidden states and the head."""
    return net.norm(ACTIVATIONS[net.config.head_act](net, linear(net, x, "lm.dense")), "lm.norm")


def predict_masked(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, length, vocabulary]."""
    output_masked(net, dense(net, x))


def classify(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, labels] of the first token or of the mean of all."""
    y = net.first(x) if net.config.pooling == "cls" else net.mean(x)
    net.output("logits", linear(net, dense(net, y), "classifier"))


def classify_tokens(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, length, labels]."""
    net.output("logits", linear(net, dense(net, x), "classifier"))


ARCHITECTURES = (
    Architecture(
        "modernbert",
        "ModernBERT",
        ("modernbert",),
        ("modern-bert",),
        of_class("ModernBert", KEYS),
        WEIGHTS,
        encoder_tasks(
            build,
            (
                FEATURES,
                Head(FILL_MASK, predict_masked, LM_HEAD),
                sequence_head(classify, (*DENSE, *CLASSIFIER)),
                Head(TOKEN_CLASSIFICATION, classify_tokens, (*DENSE, *CLASSIFIER), aliases=("ner",)),
            ),
        ),
        settle=settle_gguf,
        ignored=(r"inv_freq$", r"^decoder\.weight$"),
        tied=True,
        defaults={"modernbert": {"max_position_embeddings": 8192}},
    ),
)
