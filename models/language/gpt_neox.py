"""GPT-NeoX and Pythia (Black et al. 2022, arXiv:2204.06745; Biderman et al. 2023, arXiv:2304.01373): parallel residual
branches with separate norms."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import REAL, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..layers.rope import Rotary, Scaling
from ..schema.gguf.required import OUTPUT_BIAS, OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    FREQUENCY_BASE,
    FUSED,
    INTERMEDIATE,
    LAYER_EPS,
    OWN_HEAD_DIM,
    ROTARY,
    act,
    matrix,
    partial,
)
from ..schema.rope.stated_parameters import FrequencyBase
from ..schema.weight_layout import GROUPED

KEYS = (
    *DECODER, Key("kv_heads", (), (), lambda config: config.heads), OWN_HEAD_DIM,
    INTERMEDIATE, LAYER_EPS, FrequencyBase("theta", "rotary_emb_base",
                                           "rope.freq_base", 10000.0, FREQUENCY_BASE),
    Scaling(), act("gelu"), partial(0.25), ROTARY,
    Key("part", "rotary_pct", (), lambda config: config.rotary_fraction, REAL),
    Key("parallel", "use_parallel_residual", "use_parallel_residual", True, flag), FUSED,
)  # fmt: skip
HF, GGUF, OURS = "gpt_neox.layers.{i}.", "blk.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "gpt_neox.embed_in", "token_embd", shape=("vocab", "hidden")),
    *matrix(f"{OURS}attn_norm", f"{HF}input_layernorm", f"{GGUF}attn_norm", shape=("hidden",)),
    *matrix(
        f"{OURS}attn.qkv",
        f"{HF}attention.query_key_value",
        f"{GGUF}attn_qkv",
        hf_layout=GROUPED,
        shape=("fused", "hidden"),
    ),
    *matrix(f"{OURS}attn.o", f"{HF}attention.dense", f"{GGUF}attn_output", shape=("hidden", "hidden")),
    *matrix(f"{OURS}mlp_norm", f"{HF}post_attention_layernorm", f"{GGUF}ffn_norm", shape=("hidden",)),
    *matrix(f"{OURS}mlp.up", f"{HF}mlp.dense_h_to_4h", f"{GGUF}ffn_up", shape=("intermediate", "hidden")),
    *matrix(f"{OURS}mlp.down", f"{HF}mlp.dense_4h_to_h", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "gpt_neox.final_layer_norm", "output_norm", shape=("hidden",)),
    *matrix("head", ("embed_out", "lm_head"), "output", optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Layers of attention and feed-forward network, in parallel with separate norms, or sequential."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        name = f"layers.{i}"
        y = net.Add(x, self_attention(net, bias_norm(net, x, f"{name}.attn_norm"), i, rotary))
        seen = x if config.parallel else y
        x = net.Add(y, plain(net, bias_norm(net, seen, f"{name}.mlp_norm"), f"{name}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "gpt_neox",
        "GPT-NeoX, Pythia",
        ("gpt_neox",),
        ("gptneox",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        prefixes=("gpt_neox.",),
        ignored=(*Architecture.ignored, r"attention\.(masked_)?bias$"),
        gguf_required={**OWN_HEAD, **OUTPUT_BIAS, "layers.{i}.attn.qkv.bias": None},
    ),
)
