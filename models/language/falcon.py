"""Falcon 7B, 40B, 180B, RW and 2 (Almazrouei et al. 2023, arXiv:2311.16867): parallel attention and feed-forward
network, grouped or multi-query attention.

Falcon RW adds ALiBi to the scores once, (q k + alibi) / sqrt(head_dim) + mask. So does the code that the model was
published with (`modelling_RW.py` of tiiuae/falcon-rw-1b), whose mask has no ALiBi in it, and so does transformers'
default attention ("sdpa"), which adds ALiBi with the mask only. Its "eager" attention adds both, so that ALiBi counts
twice, and gives other logits (issue 29946 of transformers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT, Integer, flag, word
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.alibi import biased, slopes
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..layers.rope import Rotary, Scaling
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread
from ..schema.hyperparameters import DECODER, FUSED, OLDER_LAYER_EPS, OWN_HEAD_DIM, THETA, act, matrix, shared_heads
from ..schema.weight_layout import GROUPED


@dataclass(frozen=True)
class FalconKVHeads:
    """Hyper-parameter: KV heads. One (multi-query), the number a new-decoder model states, or one per query head."""

    name: str = "kv_heads"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if names != HF:
            return shared_heads(
                "attention.head_count_kv", source.get("attention.head_count_kv") or config.heads, config
            )
        if source.get("new_decoder_architecture"):
            key = "num_kv_heads" if source.get("num_kv_heads") else "n_head_kv"
            return shared_heads(key, source.get(key) or config.heads, config)
        return 1 if source.get("multi_query", True) else int(config.heads)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {"attention.head_count_kv": config.kv_heads}
        new = config.kv_heads not in (1, config.heads) or config.grouped
        return {"new_decoder_architecture": new, "multi_query": config.kv_heads == 1, "num_kv_heads": config.kv_heads}


KEYS = (
    *DECODER, FalconKVHeads(), OWN_HEAD_DIM,
    Key("grouped", "new_decoder_architecture", (), lambda config: config.names != HF and config.kv_heads > 1, flag),
    Key("intermediate", "ffn_hidden_size", "feed_forward_length", lambda config: 4 * config.hidden, COUNT),
    OLDER_LAYER_EPS, THETA, Scaling(),
    act("gelu", "activation"), Key("alibi", "alibi", (), False, flag), Key("parallel", "parallel_attn", (), True, flag),
    Key("norms", "num_ln_in_parallel_attn", (), lambda config: 2 if config.grouped else 1, Integer(1, 2)),
    Key("qkv_layout", (), "tensor_data_layout", "jploski", word), FUSED,
)  # fmt: skip
HF_LAYER, GGUF_LAYER = "transformer.h.{i}.", "blk.{i}."
WEIGHTS = (
    *matrix("embed", "transformer.word_embeddings", "token_embd", shape=("vocab", "hidden")),
    *matrix(
        "layers.{i}.attn_norm",
        f"{HF_LAYER}input_layernorm",
        f"{GGUF_LAYER}attn_norm",
        when=lambda config, i: config.norms == 1,
        shape=("hidden",),
    ),
    *matrix(
        "layers.{i}.attn_norm",
        f"{HF_LAYER}ln_mlp",
        f"{GGUF_LAYER}attn_norm",
        when=lambda config, i: config.norms == 2,
        shape=("hidden",),
    ),
    *matrix(
        "layers.{i}.attn_norm_2", f"{HF_LAYER}ln_attn", f"{GGUF_LAYER}attn_norm_2", optional=True, shape=("hidden",)
    ),
    *matrix(
        "layers.{i}.attn.qkv",
        f"{HF_LAYER}self_attention.query_key_value",
        f"{GGUF_LAYER}attn_qkv",
        hf_layout=GROUPED,
        shape=("fused", "hidden"),
    ),
    *matrix(
        "layers.{i}.attn.o",
        f"{HF_LAYER}self_attention.dense",
        f"{GGUF_LAYER}attn_output",
        shape=("hidden", "heads*head_dim"),
    ),
    *matrix(
        "layers.{i}.mlp_norm",
        f"{HF_LAYER}post_attention_layernorm",
        f"{GGUF_LAYER}ffn_norm",
        when=lambda config, i: not config.parallel,
        shape=("hidden",),
    ),
    *matrix(
        "layers.{i}.mlp.up", f"{HF_LAYER}mlp.dense_h_to_4h", f"{GGUF_LAYER}ffn_up", shape=("intermediate", "hidden")
    ),
    *matrix(
        "layers.{i}.mlp.down", f"{HF_LAYER}mlp.dense_4h_to_h", f"{GGUF_LAYER}ffn_down", shape=("hidden", "intermediate")
    ),
    *matrix("norm", "transformer.ln_f", "output_norm", shape=("hidden",)),
    *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
)


def settle(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Count the norms of a layer from the weights; GGUF keys do not record it."""
    config.values["norms"] = 2 if "layers.0.attn_norm_2.weight" in weights else 1


def build(net: Decoder) -> None:
    """Parallel layers with one or two norms; Falcon RW is sequential, with ALiBi."""
    config = net.config
    scale = config.head_dim**-0.5
    rotary = None if config.alibi else Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    mask = biased(net, slopes(config.heads), scale, narrow=True) if config.alibi else None
    for i in range(config.layers):
        name = f"layers.{i}"
        h = bias_norm(net, x, f"{name}.attn_norm")
        seen = bias_norm(net, x, f"{name}.attn_norm_2") if net.has(f"{name}.attn_norm_2.weight") else h
        y = self_attention(net, seen, i, rotary, scores=Scores(mask))
        if config.parallel:
            x = net.Add(net.Add(plain(net, h, f"{name}.mlp", config.act), y), x)
        else:
            x = net.Add(x, y)
            x = net.Add(x, plain(net, bias_norm(net, x, f"{name}.mlp_norm"), f"{name}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "falcon",
        "Falcon",
        ("falcon", "RefinedWeb", "RefinedWebModel"),
        ("falcon",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle,
        tied=True,
        deviations=(Unread(PROJECTION_BIAS),),
    ),
)
