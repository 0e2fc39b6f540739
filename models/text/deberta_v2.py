"""DeBERTa v2 and v3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543): attention scores are sums of content
and relative position terms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import Architecture, Config, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed, checked, flag, word
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_first, masked_lm
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS, plain
from ..layers.relative_position import log_bucketed
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.activation import activation
from ..schema.encoder_hyperparameters import BERT, FILL_MASK
from ..schema.encoder_weights import CLASSIFIER, embeddings, masked_lm_head, norm
from ..schema.hyperparameters import matrix

TERMS = ("c2p", "p2c")
"""Terms of the scores: content to position, and position to content."""


def reach(config: Config) -> int:
    """The farthest distance between key and query that has an embedding."""
    return int(config.farthest if config.farthest > 0 else config.context)


@dataclass(frozen=True)
class PositionTerms:
    """Hyper-parameter: the position terms of the scores, stated as ``"p2c|c2p"`` or as a list."""

    name: str = "terms"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> tuple[str, ...]:
        stated = source.get("pos_att_type") or ""
        parts = stated.split("|") if isinstance(stated, str) else checked("pos_att_type", stated, Listed(word))
        known = [part.strip().lower() for part in parts]
        return tuple(term for term in TERMS if config.relative and term in known)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"pos_att_type": "|".join(config.terms)}


KEYS = (
    *(row for row in BERT if row.name != "types"),
    Key("types", "type_vocab_size", (), 0),
    Key("relative", "relative_attention", (), False, flag),
    PositionTerms(),
    Key("shared", "share_att_key", (), False, flag),
    Key("farthest", "max_relative_positions", (), -1, Integer(-1, 1 << 20)),
    Key("buckets", "position_buckets", (), -1, Integer(-1, 1 << 20)),
    Key("span", (), (), lambda config: config.buckets if config.buckets > 0 else reach(config), COUNT),
    Key("normed", "norm_rel_ebd", (), "none", word),
    Key("legacy", "legacy", (), True, flag),
    Key("kernel", "conv_kernel_size", (), 0, Integer(0, 255)),
    Key("conv_act", "conv_act", (), "tanh", Choice(("tanh", "gelu", "relu", "silu"))),
    Key("pool_act", "pooler_hidden_act", (), "gelu", activation),
)
HF, NAME, SQUARE = "deberta.encoder.layer.{i}.", "layers.{i}.", ("hidden", "hidden")


def separate(term: str) -> Callable[[Config, int], bool]:
    """Whether a model projects positions for a term by weights of their own."""
    return lambda config, i: term in config.terms and not config.shared


WEIGHTS = (
    *embeddings("deberta."),
    Weight(
        "relative.weight",
        "deberta.encoder.rel_embeddings.weight",
        shape=("2*span", "hidden"),
        when=lambda config, i: config.relative,
    ),
    *(
        replace(row, when=lambda config, i: "layer_norm" in config.normed)
        for row in norm("relative_norm", "deberta.encoder.LayerNorm")
    ),
    *matrix(f"{NAME}attn.q", f"{HF}attention.self.query_proj", None, shape=SQUARE),
    *matrix(f"{NAME}attn.k", f"{HF}attention.self.key_proj", None, shape=SQUARE),
    *matrix(f"{NAME}attn.v", f"{HF}attention.self.value_proj", None, shape=SQUARE),
    *matrix(f"{NAME}attn.pos_k", f"{HF}attention.self.pos_key_proj", None, shape=SQUARE, when=separate("c2p")),
    *matrix(f"{NAME}attn.pos_q", f"{HF}attention.self.pos_query_proj", None, shape=SQUARE, when=separate("p2c")),
    *matrix(f"{NAME}attn.o", f"{HF}attention.output.dense", None, shape=SQUARE),
    *norm(f"{NAME}attn_norm", f"{HF}attention.output.LayerNorm"),
    *matrix(f"{NAME}mlp.up", f"{HF}intermediate.dense", None, shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}output.dense", None, shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}output.LayerNorm"),
    *matrix(
        "conv", "deberta.encoder.conv.conv", None, shape=("hidden", "hidden", "kernel"), when=lambda c, i: c.kernel > 0
    ),
    *(
        replace(row, when=lambda config, i: config.kernel > 0)
        for row in norm("conv_norm", "deberta.encoder.conv.LayerNorm")
    ),
)
LM_HEAD = masked_lm_head(
    ("cls.predictions.transform.dense", "lm_predictions.lm_head.dense"),
    ("cls.predictions.transform.LayerNorm", "lm_predictions.lm_head.LayerNorm"),
    ("cls.predictions.bias", "lm_predictions.lm_head.bias"),
    "cls.predictions.decoder.weight",
    when=lambda config, i: config.legacy,
)
"""The newer class of heads always has the embedding."""
CONTEXT_CLASSIFIER = (*matrix("classifier_dense", "pooler.dense", None, shape=SQUARE), *CLASSIFIER)


def build(net: Encoder) -> Value:
    """Embeddings, then post-norm layers; the first one may have a convolution next to it."""
    config = net.config
    net.begin(types=config.types > 1)
    tokens = net.Unsqueeze(net.Cast(net.mask, to=1), [2])
    x = net.Mul(bert_embeddings(net, net.positions()), tokens)
    places = None
    if config.relative:
        places = relative_embedding(net)
    for i in range(config.layers):
        name, before = f"layers.{i}", x
        x = net.norm(net.Add(attention(net, x, f"{name}.attn", places), x), f"{name}.attn_norm")
        x = net.norm(net.Add(plain(net, x, f"{name}.mlp", config.act), x), f"{name}.mlp_norm")
        if i == 0 and config.kernel:
            x = net.Mul(net.norm(net.Add(x, convolution(net, before, tokens)), "conv_norm"), tokens)
    return x


def relative_embedding(net: Encoder) -> Value:
    """The embedding of each distance, [1, 2 x span, hidden]."""
    table = net.vector("relative.weight")
    return net.Unsqueeze(net.norm(table, "relative_norm") if net.has("relative_norm.weight") else table, [0])


def attention(net: Encoder, x: Value, name: str, positions: Value | None) -> Value:
    """Disentangled attention: scores are q k^T + q p_k^T + p_q k^T, each divided by the root of head_dim times the
    number of terms."""
    config = net.config
    q, k, v = (net.heads(linear(net, x, f"{name}.{part}"), config.heads) for part in "qkv")
    scale = 1 / math.sqrt(config.head_dim * (1 + len(config.terms)))
    mask = net.visible()
    if positions is not None and config.terms:
        bias = functools.reduce(net.Add, (term_scores(net, q, k, name, term, positions) for term in config.terms))
        mask = net.Add(net.Mul(bias, scale), net.hidden_scores())
    y = net.Attention(q, k, v, mask, scale=scale)
    return linear(net, net.merge_heads(net.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")


def term_scores(net: Encoder, q: Value, k: Value, name: str, term: str, positions: Value) -> Value:
    """One position term of the scores, f32 [batch, heads, length, length]."""
    config = net.config
    part = "k" if term == "c2p" else "q"
    weights = f"{name}.{part}" if config.shared else f"{name}.pos_{part}"
    projected = net.Transpose(net.heads(linear(net, positions, weights), config.heads), perm=[0, 1, 3, 2])
    scores = net.MatMul(q if term == "c2p" else k, projected)
    index = net.once(("index", term), lambda: _index(net, term))
    shape = net.Concat(net.Shape(scores, start=0, end=3), net.Shape(scores, start=2, end=3), axis=0)
    found = net.GatherElements(scores, net.Expand(index, shape), axis=3)
    return found if term == "c2p" else net.Transpose(found, perm=[0, 1, 3, 2])


def _index(net: Encoder, term: str) -> Value:
    """Rows of the position embedding, i64 [length, length]: by query and key for c2p, by key and query for p2c."""
    config = net.config
    behind = net.Neg(net.distances())
    if config.buckets > 0:
        behind = log_bucketed(net, behind, config.buckets, reach(config))
    behind = behind if term == "c2p" else net.Neg(behind)
    span = net.Constant(value_int=config.span)
    last = net.Constant(value_int=2 * config.span - 1)
    index: Value = net.Min(net.Max(net.Add(behind, span), net.Constant(value_int=0)), last)
    return index


def convolution(net: Encoder, x: Value, tokens: Value) -> Value:
    """A convolution along the text, f32 [batch, length, hidden], 0 at padding before the activation."""
    config = net.config
    pad = (config.kernel - 1) // 2
    bias = net.vector("conv.bias") if net.has("conv.bias") else None
    y = net.Conv(net.Transpose(x, perm=[0, 2, 1]), net.vector("conv.weight"), bias, pads=[pad, pad])
    y = net.Mul(net.Transpose(y, perm=[0, 2, 1]), tokens)
    result: Value = net.Tanh(y) if config.conv_act == "tanh" else ACTIVATIONS[config.conv_act](net, y)
    return result


ARCHITECTURES = (
    Architecture(
        "deberta_v2",
        "DeBERTa v2 and v3",
        ("deberta-v2",),
        (),
        KEYS,
        WEIGHTS,
        encoder_tasks(
            build,
            (
                FEATURES,
                Head(FILL_MASK, masked_lm, LM_HEAD),
                sequence_head(lambda net, x: classify_first(net, x, net.config.pool_act), CONTEXT_CLASSIFIER),
                TOKENS,
                ANSWERS,
            ),
        ),
        prefixes=("deberta.",),
        ignored=(r"position_ids$", r"position_embeddings", r"^cls\.", r"^lm_predictions\.", r"^mask_predictions\."),
        tied=True,
        defaults={"deberta-v2": {"layer_norm_eps": 1e-07}},
    ),
)
