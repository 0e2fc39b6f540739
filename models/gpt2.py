"""GPT-2 (Radford et al. 2019) and StarCoder (Li et al. 2023, arXiv:2305.06161): learned positions; StarCoder has one head of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.arch import GGUF, SAME, Architecture, Config, Key, Layout, Weight
from ..runtime.parameter import COUNT, flag
from ..runtime.record import dataclass
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.layouts import GROUPED, Transposed
from .layers.linear import embedding
from .layers.mlp import plain
from .layers.norm import bias_norm
from .layers.rows import DECODER, FUSED, LAYER_EPS, OWN_HEAD_DIM, act, key_heads, matrix


@dataclass(frozen=True)
class MultiQuery(Key):
    """Row of whether all heads share one head of keys and values; GGUF files say how many there are."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> bool:
        if names == GGUF:
            return bool(source.get("attention.head_count_kv", 1) == 1)
        return bool(super().read(names, source, config))


KEYS = (
    *DECODER, OWN_HEAD_DIM, LAYER_EPS,
    Key("intermediate", "n_inner", "feed_forward_length", lambda config: 4 * config.hidden, COUNT),
)  # fmt: skip
GPT2_KEYS = (*KEYS, Key("kv_heads", (), (), lambda config: config.heads), act("gelu_tanh", "activation_function"), FUSED)
BIGCODE_KEYS = (
    *KEYS, MultiQuery("multi_query", "multi_query", (), True, flag), act("gelu_tanh", "activation_function"),
    key_heads((), lambda config: 1 if config.multi_query else config.heads), FUSED,
)  # fmt: skip


def weights(layout: Layout, fused: Layout) -> tuple[Weight, ...]:
    """The rows, with the layout of all matrices and that of queries, keys and values in one."""
    hf, gguf, name = "transformer.h.{i}.", "blk.{i}.", "layers.{i}."
    return (
        *matrix("embed", "transformer.wte", "token_embd", shape=("vocab", "hidden")),
        *matrix("positions", "transformer.wpe", "position_embd", shape=("context", "hidden")),
        *matrix(f"{name}attn_norm", f"{hf}ln_1", f"{gguf}attn_norm", shape=("hidden",)),
        *matrix(f"{name}attn.qkv", f"{hf}attn.c_attn", f"{gguf}attn_qkv", hf_layout=fused, shape=("fused", "hidden")),
        *matrix(f"{name}attn.o", f"{hf}attn.c_proj", f"{gguf}attn_output", hf_layout=layout,
                shape=("hidden", "heads*head_dim")),
        *matrix(f"{name}mlp_norm", f"{hf}ln_2", f"{gguf}ffn_norm", shape=("hidden",)),
        *matrix(f"{name}mlp.up", f"{hf}mlp.c_fc", f"{gguf}ffn_up", hf_layout=layout, shape=("intermediate", "hidden")),
        *matrix(f"{name}mlp.down", f"{hf}mlp.c_proj", f"{gguf}ffn_down", hf_layout=layout, shape=("hidden", "intermediate")),
        *matrix("norm", "transformer.ln_f", "output_norm", shape=("hidden",)),
        *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
    )


def build(net: Decoder) -> None:
    """Pre-norm layers; positions are added to the tokens."""
    config = net.config
    x = net.Add(net.begin(), embedding(net, net.positions, "positions"))
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, bias_norm(net, x, f"layers.{i}.attn_norm"), i, None))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture("gpt2", "GPT-2", ("gpt2",), ("gpt2",), GPT2_KEYS, weights(Transposed(), Transposed()), build),
    Architecture("gpt_bigcode", "StarCoder", ("gpt_bigcode",), ("starcoder",), BIGCODE_KEYS, weights(SAME, GROUPED), build),
)
