"""Nomic BERT (Nussbaum et al. 2024, arXiv:2402.01613): BERT with rotary positions and a gated feed-forward network."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, Choice, Real, flag, word
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, post_norm_layer
from ..layers.rope import Rotary
from ..pipelines.encoder_tasks import FEATURES, encoder_tasks
from ..schema.encoder_hyperparameters import ENCODER, TYPES
from ..schema.encoder_weights import norm
from ..schema.hyperparameters import FREQUENCY_BASE, matrix

PROJECTED = Key("projected", (), (), lambda config: 3 * config.hidden)
"""Rows of the fused query, key and value matrix."""
KEYS = (
    *ENCODER,
    Key("intermediate", ("n_inner", "intermediate_size"), (), lambda config: 4 * config.hidden, COUNT),
    Key("theta", ("rotary_emb_base", "rope_parameters.rope_theta", "rope_theta"), (), 10000.0, FREQUENCY_BASE),
    Key("interleaved", "rotary_emb_interleaved", (), False, flag),
    Key("act", (), (), "silu", word),
    Key("gate", "activation_function", (), "swiglu", Choice(("swiglu",))),
    Key("fraction", "rotary_emb_fraction", (), 1.0, Real(1, 1)),
    TYPES,
    PROJECTED,
)
"""Checkpoints with another activation, or that rotate a part of each head, are refused."""
HF, NAME = "encoder.layers.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "embeddings.word_embeddings", None, shape=("vocab", "hidden"))[:1],
    *matrix("types", "embeddings.token_type_embeddings", None, shape=("types", "hidden"), optional=True)[:1],
    *norm("embed_norm", "emb_ln"),
    *matrix(f"{NAME}attn.qkv", f"{HF}attn.Wqkv", None, shape=("projected", "hidden")),
    *matrix(f"{NAME}attn.o", f"{HF}attn.out_proj", None, shape=("hidden", "hidden")),
    *norm(f"{NAME}attn_norm", f"{HF}norm1"),
    *matrix(f"{NAME}mlp.gate", f"{HF}mlp.fc12", None, shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.up", f"{HF}mlp.fc11", None, shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}mlp.fc2", None, shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}norm2"),
)


def build(net: Encoder) -> Value:
    """Embeddings without positions, then post-norm layers that rotate queries and keys."""
    config = net.config
    net.begin(types=net.has("types.weight") and config.types > 1)
    x = bert_embeddings(net, net.positions())
    rotary = Rotary(config.head_dim, config.theta, {"type": "default"}, config.context, interleaved=config.interleaved)
    for i in range(config.layers):
        x = post_norm_layer(net, x, f"layers.{i}", rotary=rotary)
    return x


ARCHITECTURES = (
    Architecture(
        "nomic_bert",
        "Nomic BERT",
        ("nomic_bert",),
        (),
        KEYS,
        WEIGHTS,
        encoder_tasks(build, (FEATURES,)),
        prefixes=("bert.", "nomic_bert."),
        ignored=(r"position_ids$", r"inv_freq$", r"^pooler\.", r"^cls\."),
    ),
)
