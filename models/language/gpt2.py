"""GPT-2 (Radford et al. 2019) and StarCoder (Li et al. 2023, arXiv:2305.06161): learned position embeddings; StarCoder
uses multi-query attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import GGUF, SAME, Architecture, Config, Key, Layout, Weight
from ...runtime.contract.hyperparameter import COUNT, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.linear import embedding
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..schema.hyperparameters import DECODER, FUSED, OLDER_LAYER_EPS, OWN_HEAD_DIM, act, kv_heads_key, matrix
from ..schema.weight_layout import GROUPED, Transposed


@dataclass(frozen=True)
class MultiQuery(Key):
    """Hyper-parameter: whether all query heads share one KV head; GGUF files store the number of KV heads."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> bool:
        if names == GGUF:
            return bool(source.get("attention.head_count_kv", 1) == 1)
        return bool(super().read(names, source, config))


KEYS = (
    *DECODER, OWN_HEAD_DIM, OLDER_LAYER_EPS,
    Key("scaled", "scale_attn_weights", (), True, flag),
    Key("scaled_by_layer", "scale_attn_by_inverse_layer_idx", (), False, flag),
    Key("intermediate", "n_inner", "feed_forward_length", lambda config: 4 * config.hidden, COUNT),
)  # fmt: skip
GPT2_KEYS = (
    *KEYS,
    Key("kv_heads", (), (), lambda config: config.heads),
    act("gelu_tanh", "activation_function"),
    FUSED,
)
BIGCODE_KEYS = (
    *KEYS, MultiQuery("multi_query", "multi_query", (), True, flag), act("gelu_tanh", "activation_function"),
    kv_heads_key((), lambda config: 1 if config.multi_query else config.heads), FUSED,
)  # fmt: skip


def weights(layout: Layout, fused: Layout) -> tuple[Weight, ...]:
    """Weight bindings, given the layout of all matrices and of the fused queries, keys and values."""
    hf, gguf, name = "transformer.h.{i}.", "blk.{i}.", "layers.{i}."
    return (
        *matrix("embed", "transformer.wte", "token_embd", shape=("vocab", "hidden")),
        *matrix("positions", "transformer.wpe", "position_embd", shape=("context", "hidden")),
        *matrix(f"{name}attn_norm", f"{hf}ln_1", f"{gguf}attn_norm", shape=("hidden",)),
        *matrix(f"{name}attn.qkv", f"{hf}attn.c_attn", f"{gguf}attn_qkv", hf_layout=fused, shape=("fused", "hidden")),
        *matrix(
            f"{name}attn.o",
            f"{hf}attn.c_proj",
            f"{gguf}attn_output",
            hf_layout=layout,
            shape=("hidden", "heads*head_dim"),
        ),
        *matrix(f"{name}mlp_norm", f"{hf}ln_2", f"{gguf}ffn_norm", shape=("hidden",)),
        *matrix(f"{name}mlp.up", f"{hf}mlp.c_fc", f"{gguf}ffn_up", hf_layout=layout, shape=("intermediate", "hidden")),
        *matrix(
            f"{name}mlp.down", f"{hf}mlp.c_proj", f"{gguf}ffn_down", hf_layout=layout, shape=("hidden", "intermediate")
        ),
        *matrix("norm", "transformer.ln_f", "output_norm", shape=("hidden",)),
        *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
    )


def build(net: Decoder) -> None:
    """Pre-norm layers; position embeddings are added to the token embeddings."""
    config = net.config
    x = net.Add(net.begin(), embedding(net, net.positions, "positions"))
    for i in range(config.layers):
        scale = (config.head_dim**-0.5 if config.scaled else 1.0) / (i + 1 if config.scaled_by_layer else 1)
        y = bias_norm(net, x, f"layers.{i}.attn_norm")
        x = net.Add(x, self_attention(net, y, i, None, scores=Scores(scale=scale)))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "gpt2",
        "GPT-2",
        ("gpt2",),
        ("gpt2",),
        GPT2_KEYS,
        weights(Transposed(), Transposed()),
        decoder_tasks(build),
        tied=True,
        defaults={"gpt2": {"n_positions": 1024}},
    ),
    Architecture(
        "gpt_bigcode",
        "StarCoder",
        ("gpt_bigcode",),
        ("starcoder",),
        BIGCODE_KEYS,
        weights(SAME, GROUPED),
        decoder_tasks(build),
        tied=True,
        defaults={"gpt_bigcode": {"n_positions": 1024}},
    ),
)
