"""Jina BERT (Günther et al. 2023, arXiv:2310.19923), Jina embeddings v2: BERT with linear position biases (ALiBi) in
both directions and gated feed-forward networks. The definition is that of the published checkpoints' own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import FEATURE_EXTRACTION, Architecture, Key
from ...runtime.contract.hyperparameter import word
from ...runtime.ir.graph import Value
from ..layers.alibi import slopes
from ..layers.encoder import Encoder, bert_embeddings
from ..layers.mlp import gated_fused
from ..pipelines.encoder_tasks import FEATURES, encoder_tasks
from ..schema.encoder_hyperparameters import BERT, settle_gguf
from ..schema.encoder_weights import embeddings, norm, pooler
from ..schema.hyperparameters import DOUBLE, matrix

KEYS = (Key("task", (), (), FEATURE_EXTRACTION, word), *BERT[1:], DOUBLE)
"""Checkpoints name the class of a masked language model and have no head."""
HF, GGUF, NAME, SQUARE = "bert.encoder.layer.{i}.", "blk.{i}.", "layers.{i}.", ("hidden", "hidden")
WEIGHTS = (
    *embeddings("bert."),
    *matrix(f"{NAME}attn.q", f"{HF}attention.self.query", f"{GGUF}attn_q", shape=SQUARE),
    *matrix(f"{NAME}attn.k", f"{HF}attention.self.key", f"{GGUF}attn_k", shape=SQUARE),
    *matrix(f"{NAME}attn.v", f"{HF}attention.self.value", f"{GGUF}attn_v", shape=SQUARE),
    *matrix(f"{NAME}attn.o", f"{HF}attention.output.dense", f"{GGUF}attn_output", shape=SQUARE),
    *norm(f"{NAME}attn_norm", f"{HF}attention.output.LayerNorm", f"{GGUF}attn_output_norm"),
    *matrix(f"{NAME}mlp.both", f"{HF}mlp.gated_layers", f"{GGUF}ffn_up", shape=("double", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}mlp.wo", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}mlp.layernorm", f"{GGUF}layer_output_norm"),
    *pooler("bert.pooler.dense"),
)


def build(net: Encoder) -> Value:
    """Embeddings without positions, then post-norm layers with a bias for the distance between key and query."""
    config = net.config
    net.begin(types=config.types > 1)
    x = bert_embeddings(net, net.positions())
    distance = net.Cast(net.Abs(net.distances()), to=1)
    bias = net.Mul(distance, -slopes(config.heads).reshape(1, -1, 1, 1))
    mask = net.Add(bias, net.hidden_scores())
    for i in range(config.layers):
        name = f"layers.{i}"
        x = net.norm(net.Add(net.self_attention(x, f"{name}.attn", mask), x), f"{name}.attn_norm")
        y = gated_fused(net, x, f"{name}.mlp", config.act, config.intermediate)
        x = net.norm(net.Add(y, x), f"{name}.mlp_norm")
    return x


def accepts(source: Mapping[str, Any]) -> bool:
    """Whether a configuration of BERT is Jina's, whose positions are biases; GGUF files name the architecture."""
    return "model_type" not in source or source.get("position_embedding_type") == "alibi"


ARCHITECTURES = (
    Architecture(
        "jina_bert",
        "Jina BERT v2",
        ("bert",),
        ("jina-bert-v2",),
        KEYS,
        WEIGHTS,
        encoder_tasks(build, (FEATURES,)),
        accepts=accepts,
        settle=settle_gguf,
        prefixes=("bert.",),
        ignored=(r"position_ids$", r"^cls\."),
    ),
)
