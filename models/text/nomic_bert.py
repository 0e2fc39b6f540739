"""Nomic BERT (Nussbaum et al. 2024, arXiv:2402.01613): BERT with rotary positions and a gated feed-forward network."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, Choice, Real, flag, word
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, post_norm_layer
from ..layers.rope import Rotary, Scaling
from ..pipelines.encoder_tasks import FEATURES, encoder_tasks
from ..schema.encoder_hyperparameters import ENCODER, TYPES, settle_gguf
from ..schema.encoder_weights import norm
from ..schema.hyperparameters import FREQUENCY_BASE, matrix
from ..schema.rope.stated_parameters import FrequencyBase

PROJECTED = Key("projected", (), (), lambda config: 3 * config.hidden)
"""Rows of the fused query, key and value matrix."""
KEYS = (
    *ENCODER,
    Key(
        "intermediate", ("intermediate_size", "n_inner"), "feed_forward_length", lambda config: 4 * config.hidden, COUNT
    ),
    FrequencyBase("theta", ("rope_theta", "rotary_emb_base"), "rope.freq_base", 10000.0, FREQUENCY_BASE),
    Scaling(),
    Key("interleaved", "rotary_emb_interleaved", (), False, flag),
    Key("act", (), (), "silu", word),
    Key("gate", "activation_function", (), "swiglu", Choice(("swiglu",))),
    Key("fraction", "rotary_emb_fraction", (), 1.0, Real(1, 1)),
    TYPES,
    PROJECTED,
)
"""Checkpoints with another activation, or that rotate a part of each head, are refused."""
HF, GGUF, NAME = "encoder.layers.{i}.", "blk.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "embeddings.word_embeddings", "token_embd", shape=("vocab", "hidden"))[:1],
    *matrix("types", "embeddings.token_type_embeddings", "token_types", shape=("types", "hidden"), optional=True)[:1],
    *norm("embed_norm", "emb_ln", "token_embd_norm"),
    *matrix(f"{NAME}attn.qkv", f"{HF}attn.Wqkv", f"{GGUF}attn_qkv", shape=("projected", "hidden")),
    *matrix(f"{NAME}attn.o", f"{HF}attn.out_proj", f"{GGUF}attn_output", shape=("hidden", "hidden")),
    *norm(f"{NAME}attn_norm", f"{HF}norm1", f"{GGUF}attn_output_norm"),
    *matrix(f"{NAME}mlp.gate", f"{HF}mlp.fc12", f"{GGUF}ffn_gate", shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.up", f"{HF}mlp.fc11", f"{GGUF}ffn_up", shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}mlp.fc2", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}norm2", f"{GGUF}layer_output_norm"),
)


def build(net: Encoder) -> Value:
    """Embeddings without positions, then post-norm layers that rotate queries and keys."""
    config = net.config
    net.begin(types=net.has("types.weight") and config.types > 1)
    x = bert_embeddings(net, net.positions())
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context, interleaved=config.interleaved)
    for i in range(config.layers):
        x = post_norm_layer(net, x, f"layers.{i}", rotary=rotary)
    return x


ARCHITECTURES = (
    Architecture(
        "nomic_bert",
        "Nomic BERT",
        ("nomic_bert",),
        ("nomic-bert",),
        KEYS,
        WEIGHTS,
        encoder_tasks(build, (FEATURES,)),
        settle=settle_gguf,
        prefixes=("bert.", "nomic_bert."),
        ignored=(r"position_ids$", r"inv_freq$", r"^pooler\.", r"^cls\."),
        defaults={"nomic_bert": {"max_position_embeddings": 2048, "rope_theta": 1000.0}},
    ),
)
