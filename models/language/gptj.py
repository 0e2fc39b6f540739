"""GPT-J (Wang and Komatsuzaki 2021): attention and feed-forward network in parallel after one layer norm, rotary
embedding of neighbouring elements, a head with a bias."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, EVEN
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..layers.rope import PLAIN, Rotary
from ..schema.gguf.deviations import NotLoaded
from ..schema.hyperparameters import DECODER, OLDER_LAYER_EPS, OWN_HEAD_DIM, act, matrix

THETA = 10000.0
"""The RoPE frequency base, which no file states."""
KEYS = (
    *DECODER, Key("kv_heads", (), (), lambda config: config.heads), OWN_HEAD_DIM, OLDER_LAYER_EPS,
    Key("intermediate", "n_inner", "feed_forward_length", lambda config: 4 * config.hidden, COUNT),
    Key("rotary", "rotary_dim", "rope.dimension_count", 64, EVEN, at_most=("head_dim",)),
    act("gelu_tanh", "activation_function"),
)  # fmt: skip
HF, GGUF, OURS = "transformer.h.{i}.", "blk.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "transformer.wte", "token_embd", shape=("vocab", "hidden")),
    *matrix(f"{OURS}attn_norm", f"{HF}ln_1", f"{GGUF}attn_norm", shape=("hidden",)),
    *(
        row
        for part in "qkv"
        for row in matrix(
            f"{OURS}attn.{part}", f"{HF}attn.{part}_proj", f"{GGUF}attn_{part}", shape=("hidden", "hidden")
        )
    ),
    *matrix(f"{OURS}attn.o", f"{HF}attn.out_proj", f"{GGUF}attn_output", shape=("hidden", "hidden")),
    *matrix(f"{OURS}mlp.up", f"{HF}mlp.fc_in", f"{GGUF}ffn_up", shape=("intermediate", "hidden")),
    *matrix(f"{OURS}mlp.down", f"{HF}mlp.fc_out", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "transformer.ln_f", "output_norm", shape=("hidden",)),
    *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Parallel layers: attention and feed-forward network read the same norm, and both are added to the residual."""
    config = net.config
    rotary = Rotary(config.rotary, THETA, PLAIN, config.context, interleaved=True)
    x = net.begin()
    for i in range(config.layers):
        h = bias_norm(net, x, f"layers.{i}.attn_norm")
        y = self_attention(net, h, i, rotary)
        x = net.Add(net.Add(y, plain(net, h, f"layers.{i}.mlp", config.act)), x)
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "gptj", "GPT-J", ("gptj",), ("gptj",), KEYS, WEIGHTS, decoder_tasks(build), deviations=(NotLoaded("GPT-J"),)
    ),
)
