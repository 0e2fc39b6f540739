"""BLOOM and BLOOMZ (BigScience 2022, arXiv:2211.05100): ALiBi, a layer norm after the embedding, fused projections
interleaved by head."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.alibi import biased, slopes
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..schema.hyperparameters import DECODER, FUSED, OLDER_LAYER_EPS, OWN_HEAD_DIM, Fixed, matrix
from ..schema.weight_layout import GROUPED

KEYS = (
    *DECODER, Key("kv_heads", (), "attention.head_count_kv", lambda config: config.heads, COUNT), OWN_HEAD_DIM,
    Key("intermediate", (), "feed_forward_length", lambda config: 4 * config.hidden, COUNT), OLDER_LAYER_EPS, FUSED,
    Fixed("normed_residual", "apply_residual_connection_post_layernorm", False, flag),
)  # fmt: skip
HF, GGUF, OURS = "transformer.h.{i}.", "blk.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "transformer.word_embeddings", "token_embd", shape=("vocab", "hidden")),
    *matrix("embed_norm", "transformer.word_embeddings_layernorm", "token_embd_norm", shape=("hidden",)),
    *matrix(f"{OURS}attn_norm", f"{HF}input_layernorm", f"{GGUF}attn_norm", shape=("hidden",)),
    *matrix(
        f"{OURS}attn.qkv",
        f"{HF}self_attention.query_key_value",
        f"{GGUF}attn_qkv",
        hf_layout=GROUPED,
        shape=("fused", "hidden"),
    ),
    *matrix(f"{OURS}attn.o", f"{HF}self_attention.dense", f"{GGUF}attn_output", shape=("hidden", "hidden")),
    *matrix(f"{OURS}mlp_norm", f"{HF}post_attention_layernorm", f"{GGUF}ffn_norm", shape=("hidden",)),
    *matrix(f"{OURS}mlp.up", f"{HF}mlp.dense_h_to_4h", f"{GGUF}ffn_up", shape=("intermediate", "hidden")),
    *matrix(f"{OURS}mlp.down", f"{HF}mlp.dense_4h_to_h", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "transformer.ln_f", "output_norm", shape=("hidden",)),
    *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with ALiBi, then a feed-forward network. The residual is the layer's input, or the
    norm of it."""
    config = net.config
    x = bias_norm(net, net.begin(), "embed_norm")
    scores = Scores(biased(net, slopes(config.heads)))
    for i in range(config.layers):
        name = f"layers.{i}"
        h = bias_norm(net, x, f"{name}.attn_norm")
        x = net.Add(self_attention(net, h, i, None, scores=scores), h if config.normed_residual else x)
        h = bias_norm(net, x, f"{name}.mlp_norm")
        x = net.Add(plain(net, h, f"{name}.mlp", "gelu_tanh"), h if config.normed_residual else x)
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture("bloom", "BLOOM", ("bloom",), ("bloom",), KEYS, WEIGHTS, decoder_tasks(build), tied=True),
)
