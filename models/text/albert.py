"""ALBERT (Lan et al. 2019, arXiv:1909.11942): BERT whose layers share weights, with narrow embeddings."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.contract.architecture import Architecture, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, Integer
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_pooled, masked_lm, post_norm_layer
from ..layers.linear import linear
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import BERT, FILL_MASK
from ..schema.encoder_weights import embeddings, masked_lm_head, norm
from ..schema.hyperparameters import LAYERS, act, matrix

KEYS = (
    *(row for row in BERT if row.name != "act"),
    act("gelu_tanh"),
    Key("width", "embedding_size", (), 128, COUNT),
    Key("groups", "num_hidden_groups", (), 1, LAYERS),
    Key("inner", "inner_group_num", (), 1, Integer(1, 1)),
)
HF, NAME, SQUARE = "albert.encoder.albert_layer_groups.{i}.albert_layers.0.", "layers.{i}.", ("hidden", "hidden")


def grouped(*rows: Weight) -> tuple[Weight, ...]:
    """Rows of weights that each group of layers has once."""
    return tuple(replace(row, layers="groups") for row in rows)


WEIGHTS = (
    *embeddings("albert.", width="width"),
    *matrix("project", "albert.encoder.embedding_hidden_mapping_in", None, shape=("hidden", "width")),
    *grouped(
        *matrix(f"{NAME}attn.q", f"{HF}attention.query", None, shape=SQUARE),
        *matrix(f"{NAME}attn.k", f"{HF}attention.key", None, shape=SQUARE),
        *matrix(f"{NAME}attn.v", f"{HF}attention.value", None, shape=SQUARE),
        *matrix(f"{NAME}attn.o", f"{HF}attention.dense", None, shape=SQUARE),
        *norm(f"{NAME}attn_norm", f"{HF}attention.LayerNorm"),
        *matrix(f"{NAME}mlp.up", f"{HF}ffn", None, shape=("intermediate", "hidden")),
        *matrix(f"{NAME}mlp.down", f"{HF}ffn_output", None, shape=("hidden", "intermediate")),
        *norm(f"{NAME}mlp_norm", f"{HF}full_layer_layer_norm"),
    ),
    *matrix("pooler", "albert.pooler", None, shape=SQUARE, optional=True),
)
LM_HEAD = masked_lm_head(
    "predictions.dense", "predictions.LayerNorm", ("predictions.bias",), "predictions.decoder.weight", width="width"
)


def build(net: Encoder) -> Value:
    """Embeddings, widened, then post-norm layers; the layers of a group share weights."""
    config = net.config
    net.begin(types=config.types > 1)
    x = linear(net, bert_embeddings(net, net.positions()), "project")
    for i in range(config.layers):
        x = post_norm_layer(net, x, f"layers.{i * config.groups // config.layers}")
    return x


ARCHITECTURES = (
    Architecture(
        "albert",
        "ALBERT",
        ("albert",),
        (),
        KEYS,
        WEIGHTS,
        encoder_tasks(
            build, (FEATURES, Head(FILL_MASK, masked_lm, LM_HEAD), sequence_head(classify_pooled), TOKENS, ANSWERS)
        ),
        prefixes=("albert.",),
        ignored=(r"position_ids$", r"^predictions\.decoder\.", r"^sop_classifier\."),
        tied=True,
    ),
)
