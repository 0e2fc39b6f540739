"""OLMo (arXiv:2402.00838), OLMo 2 and 3 (arXiv:2501.00656): OLMo has norms without weights; OLMo 2 and 3 have norms
after each block."""

from __future__ import annotations

from ...runtime.contract.architecture import HF, Architecture, Config, Key
from ...runtime.contract.hyperparameter import NOT_NEGATIVE, POSITIVE
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import attend, self_attention
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import gated
from ..layers.net import Net
from ..layers.norm import layer_norm, norm
from ..layers.rope import Rotary, Scaling, rotaries
from ..schema.decoder_weights import AFTER_ATTN, AFTER_MLP, EMBED, GATED, HEAD, NORM, WHOLE_QK_NORM, attention
from ..schema.gguf.deviations import BIAS, Unread
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    FREQUENCY_BASE,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS_5,
    THETA,
    Windows,
    act,
)
from ..schema.rope.stated_parameters import FULL_LAYERS, SLIDING_LAYERS, FrequencyBase


def _local_theta(config: Config) -> float:
    """The default base of sliding-window layers: transformers applies a ``rope_theta`` to the others only."""
    return 5e5 if config.names == HF else float(config.theta)


KEYS = (
    *DECODER, KV_HEADS, HF_HEAD_DIM, INTERMEDIATE, Scaling(), act("silu"),
)  # fmt: skip
OLMO_KEYS = (
    *KEYS, THETA, Key("clip", "clip_qkv", "attention.clamp_kqv", None, POSITIVE),
    Key("eps", (), "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE),
)  # fmt: skip
OLMO2_KEYS = (*KEYS, THETA, RMS_EPS_5, Windows())
OLMO3_KEYS = (
    *(row for row in KEYS if row.name != "scaling"),
    FrequencyBase("theta", "rope_theta", "rope.freq_base", 5e5, FREQUENCY_BASE, section=FULL_LAYERS),
    FrequencyBase("local_theta", (), (), _local_theta, FREQUENCY_BASE, section=SLIDING_LAYERS),
    Scaling(section=FULL_LAYERS), Scaling("local_scaling", SLIDING_LAYERS, gguf_keys=None),
    RMS_EPS_5, Windows(lambda config, i: (i + 1) % 4 != 0, period=4, explicit=True, usual=4096),
)  # fmt: skip
WEIGHTS = (*EMBED, *attention(pairs=True), *GATED, *HEAD)
OLMO2_WEIGHTS = (*EMBED, *attention(), *WHOLE_QK_NORM, *AFTER_ATTN, *GATED, *AFTER_MLP, *NORM, *HEAD)


def build_olmo(net: Decoder) -> None:
    """Pre-norm layers with weightless layer norms; queries, keys and values are clipped."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)

    def bare(net: Net, x: Value, name: str) -> Value:
        return layer_norm(net, x, name, config.eps, config.hidden)

    def clipped(x: Value, name: str) -> Value:
        y = linear(net, x, name)
        return net.Clip(y, -config.clip, config.clip) if config.clip else y

    x = net.begin()
    for i in range(config.layers):
        h = bare(net, x, f"layers.{i}.attn_norm")
        q, k, v = (clipped(h, f"layers.{i}.attn.{part}") for part in "qkv")
        q, k = rotary.rotate(net, q, config.heads, net.positions), rotary.rotate(net, k, config.kv_heads, net.positions)
        y = attend(net, q, k, v, i)
        x = net.Add(x, linear(net, y, f"layers.{i}.attn.o"))
        x = net.Add(x, gated(net, bare(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bare)


def build_olmo2(net: Decoder) -> None:
    """Post-norm layers; queries and keys are normalized over all heads at once; sliding-window layers have RoPE
    parameters of their own."""
    config = net.config
    whole, local = rotaries(config)
    x = net.begin()
    for i, window in enumerate(config.windows):
        y = self_attention(
            net, x, i, local if window else whole, window=window, normed=lambda net, y, name, heads: norm(net, y, name)
        )
        x = net.Add(x, norm(net, y, f"layers.{i}.after_attn"))
        x = net.Add(x, norm(net, gated(net, x, f"layers.{i}.mlp", config.act), f"layers.{i}.after_mlp"))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "olmo",
        "OLMo",
        ("olmo",),
        ("olmo",),
        OLMO_KEYS,
        WEIGHTS,
        decoder_tasks(build_olmo),
        deviations=(Unread(BIAS),),
        defaults={"olmo": {"pad_token_id": 1}},
    ),
    Architecture(
        "olmo2",
        "OLMo 2",
        ("olmo2",),
        ("olmo2",),
        OLMO2_KEYS,
        OLMO2_WEIGHTS,
        decoder_tasks(build_olmo2),
        accepts=lambda source: not source.get("olmo2.attention.sliding_window"),
        gguf_required=OWN_HEAD,
        deviations=(Unread(BIAS),),
        defaults={"olmo2": {"pad_token_id": 1}},
    ),
    Architecture(
        "olmo3",
        "OLMo 3",
        ("olmo3",),
        ("olmo2",),
        OLMO3_KEYS,
        OLMO2_WEIGHTS,
        decoder_tasks(build_olmo2),
        accepts=lambda source: (
            source.get("model_type") == "olmo3" or bool(source.get("olmo2.attention.sliding_window"))
        ),
        gguf_required=OWN_HEAD,
        deviations=(Unread(BIAS),),
        defaults={"olmo3": {"pad_token_id": 1}},
    ),
)
