"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): pre-norm layers with rotary positions, gated feed-forward
networks, and attention to neighbours only in most layers."""

from __future__ import annotations

from typing import Any

from ...runtime.contract.architecture import Architecture, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Choice
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder
from ..layers.linear import embedding, linear
from ..layers.mlp import ACTIVATIONS, gated_fused
from ..layers.rope import Rotary
from ..pipelines.encoder_tasks import FEATURES, Head, encoder_tasks, sequence_head
from ..schema.activation import activation
from ..schema.encoder_hyperparameters import ENCODER, FILL_MASK, TOKEN_CLASSIFICATION
from ..schema.encoder_weights import CLASSIFIER
from ..schema.hyperparameters import DOUBLE, FREQUENCY_BASE, INTERMEDIATE, act, matrix

KEYS = (
    *(row for row in ENCODER if row.name != "eps"),
    Key("eps", "norm_eps", (), 1e-5, NOT_NEGATIVE),
    INTERMEDIATE,
    DOUBLE,
    act("gelu", "hidden_activation"),
    Key("period", "global_attn_every_n_layers", (), 3, COUNT),
    Key("window", "local_attention", (), 128, COUNT),
    Key("theta", ("global_rope_theta", "rope_parameters.full_attention.rope_theta"), (), 160000.0, FREQUENCY_BASE),
    Key(
        "local_theta", ("local_rope_theta", "rope_parameters.sliding_attention.rope_theta"), (), 10000.0, FREQUENCY_BASE
    ),
    Key("pooling", "classifier_pooling", (), "cls", Choice(("cls", "mean"))),
    Key("head_act", "classifier_activation", (), "gelu", activation),
    Key("projected", (), (), lambda config: 3 * config.hidden),
)
HF, NAME, SQUARE, WIDE = "model.layers.{i}.", "layers.{i}.", ("hidden", "hidden"), ("double", "hidden")


def norm(name: str, hf: str, **options: Any) -> tuple[Weight, Weight]:
    """Bindings of a layer norm, whose bias most models lack."""
    return matrix(name, hf, None, shape=("hidden",), **options)


WEIGHTS = (
    *matrix("embed", "model.embeddings.tok_embeddings", None, shape=("vocab", "hidden"))[:1],
    *norm("embed_norm", "model.embeddings.norm"),
    *norm(f"{NAME}attn_norm", f"{HF}attn_norm", when=lambda config, i: i > 0),
    *matrix(f"{NAME}attn.qkv", f"{HF}attn.Wqkv", None, shape=("projected", "hidden")),
    *matrix(f"{NAME}attn.o", f"{HF}attn.Wo", None, shape=SQUARE),
    *norm(f"{NAME}mlp_norm", f"{HF}mlp_norm"),
    *matrix(f"{NAME}mlp.both", f"{HF}mlp.Wi", None, shape=WIDE),
    *matrix(f"{NAME}mlp.down", f"{HF}mlp.Wo", None, shape=("hidden", "intermediate")),
    *norm("norm", "model.final_norm"),
)
DENSE = (*matrix("lm.dense", "head.dense", None, shape=SQUARE), *norm("lm.norm", "head.norm"))
LM_HEAD = (*DENSE, Weight("lm.bias", "decoder.bias", shape=("vocab",), optional=True))


def build(net: Encoder) -> Value:
    """Pre-norm layers; every `period`-th attends to all tokens, the others to half a window on each side."""
    config = net.config
    net.begin()
    x = net.norm(embedding(net, net.ids, "embed"), "embed_norm")
    near = net.And(net.visible(), net.LessOrEqual(net.Abs(net.distances()), [config.window // 2]))
    near = net.Or(near, net.Equal(net.distances(), [0]))
    for i in range(config.layers):
        everywhere = i % config.period == 0
        theta = config.theta if everywhere else config.local_theta
        rotary = Rotary(config.head_dim, theta, {"type": "default"}, config.context)
        y = net.norm(x, f"layers.{i}.attn_norm") if i else x
        x = net.Add(x, net.self_attention(y, f"layers.{i}.attn", None if everywhere else near, rotary))
        y = net.norm(x, f"layers.{i}.mlp_norm")
        x = net.Add(x, gated_fused(net, y, f"layers.{i}.mlp", config.act, config.intermediate))
    return net.norm(x, "norm")


def dense(net: Encoder, x: Value) -> Value:
    """The layer between the hidden states and the head."""
    return net.norm(ACTIVATIONS[net.config.head_act](net, linear(net, x, "lm.dense")), "lm.norm")


def predict_masked(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, length, vocabulary]."""
    y = linear(net, dense(net, x), "embed")
    net.output("logits", net.Add(y, net.vector("lm.bias")) if net.has("lm.bias") else y)


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
        (),
        KEYS,
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
        ignored=(r"inv_freq$", r"^decoder\.weight$"),
    ),
)
