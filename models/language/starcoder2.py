"""StarCoder2 (Lozhkov et al. 2024, arXiv:2402.19173): layer norms, biases everywhere, sliding-window attention."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import NOT_NEGATIVE
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import ignored_windows
from ..schema.gguf.required import OUTPUT_BIAS
from ..schema.hyperparameters import DECODER, HF_HEAD_DIM, INTERMEDIATE, THETA, Windows, act, kv_heads_key, matrix

KEYS = (
    *DECODER, kv_heads_key(default=2), INTERMEDIATE, THETA, Scaling(), act("gelu_tanh"),
    HF_HEAD_DIM,
    Key("eps", ("norm_epsilon", "layer_norm_epsilon"), "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE), Windows(),
)  # fmt: skip
WEIGHTS = (
    *EMBED, *ATTN_NORM, *attention(), *MLP_NORM,
    *matrix("layers.{i}.mlp.up", "model.layers.{i}.mlp.c_fc", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", "model.layers.{i}.mlp.c_proj", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a feed-forward network."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, bias_norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "starcoder2",
        "StarCoder2",
        ("starcoder2",),
        ("starcoder2",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        gguf_required={**OUTPUT_BIAS, "layers.{i}.mlp.up.bias": None, "layers.{i}.mlp.down.bias": None},
        deviations=(ignored_windows,),
        defaults={"starcoder2": {"max_position_embeddings": 4096}},
    ),
)
