"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500): Llama's layers with attention to all tokens."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder
from ..layers.linear import embedding, head
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..pipelines.encoder_tasks import FEATURES, Head, encoder_tasks
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, MLP_NORM, NORM, attention
from ..schema.decoder_weights import HEAD as HEAD_WEIGHTS
from ..schema.encoder_hyperparameters import ENCODER, FILL_MASK, UNSCALED
from ..schema.hyperparameters import INTERMEDIATE, KV_HEADS, RMS_EPS_5, THETA, WHOLE_ROTARY, act

KEYS = (
    *(row for row in ENCODER if row.name != "eps"),
    KV_HEADS,
    INTERMEDIATE,
    RMS_EPS_5,
    THETA,
    WHOLE_ROTARY,
    Scaling(),
    act("silu"),
    UNSCALED,
)
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM)


def build(net: Encoder) -> Value:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    net.begin()
    x = embedding(net, net.ids, "embed")
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    for i in range(config.layers):
        y = norm(net, x, f"layers.{i}.attn_norm")
        x = net.Add(x, net.self_attention(y, f"layers.{i}.attn", rotary=rotary))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    return norm(net, x, "norm")


def predict_masked(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, length, vocabulary]."""
    net.output("logits", head(net, x))


ARCHITECTURES = (
    Architecture(
        "eurobert",
        "EuroBERT",
        ("eurobert",),
        ("eurobert",),
        KEYS,
        WEIGHTS,
        encoder_tasks(build, (FEATURES, Head(FILL_MASK, predict_masked, HEAD_WEIGHTS))),
        defaults={"eurobert": {"max_position_embeddings": 8192}},
    ),
)
