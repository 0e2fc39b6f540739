"""Jina embeddings v3 (Sturua et al. 2024, arXiv:2409.10173): XLM-RoBERTa with rotary positions, as transformers defines
it (adapters merged)."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, post_norm_layer
from ..layers.rope import Rotary, Scaling
from ..pipelines.encoder_tasks import FEATURES, encoder_tasks
from ..schema.encoder_hyperparameters import BERT, settle_gguf
from ..schema.encoder_weights import norm, pooler
from ..schema.hyperparameters import FREQUENCY_BASE, matrix
from ..schema.rope.stated_parameters import FrequencyBase

KEYS = (
    *BERT,
    FrequencyBase("theta", ("rope_theta", "rotary_emb_base"), "rope.freq_base", 20000.0, FREQUENCY_BASE),
    Scaling(),
    Key("projected", (), (), lambda config: 3 * config.hidden),
)
HF, GGUF, NAME = "encoder.layers.{i}.", "blk.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "embeddings.word_embeddings", "token_embd", shape=("vocab", "hidden"))[:1],
    *matrix("types", "embeddings.token_type_embeddings", "token_types", shape=("types", "hidden"), optional=True)[:1],
    *norm("embed_norm", "emb_ln", "token_embd_norm"),
    *matrix(f"{NAME}attn.qkv", f"{HF}mixer.Wqkv", f"{GGUF}attn_qkv", shape=("projected", "hidden")),
    *matrix(f"{NAME}attn.o", f"{HF}mixer.out_proj", f"{GGUF}attn_output", shape=("hidden", "hidden")),
    *norm(f"{NAME}attn_norm", f"{HF}norm1", f"{GGUF}attn_output_norm"),
    *matrix(f"{NAME}mlp.up", f"{HF}mlp.fc1", f"{GGUF}ffn_up", shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}mlp.fc2", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}norm2", f"{GGUF}layer_output_norm"),
    *pooler("pooler.dense"),
)


def build(net: Encoder) -> Value:
    """Embeddings without positions, then post-norm layers that rotate queries and keys."""
    config = net.config
    net.begin(types=config.types > 1)
    x = bert_embeddings(net, net.positions())
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    for i in range(config.layers):
        x = post_norm_layer(net, x, f"layers.{i}", rotary=rotary)
    return x


ARCHITECTURES = (
    Architecture(
        "jina_embeddings_v3",
        "Jina embeddings v3",
        ("jina_embeddings_v3",),
        ("jina-bert-v3",),
        KEYS,
        WEIGHTS,
        encoder_tasks(build, (FEATURES,)),
        settle=settle_gguf,
        prefixes=("roberta.",),
        ignored=(r"position_ids$", r"inv_freq$", r"^lm_head\."),
        defaults={
            "jina_embeddings_v3": {
                "max_position_embeddings": 8194,
                "type_vocab_size": 1,
                "layer_norm_eps": 1e-05,
                "pad_token_id": 1,
            }
        },
    ),
)
