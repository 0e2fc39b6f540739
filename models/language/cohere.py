"""Command R and Command R7B (Cohere): attention and gated network in parallel after one bias-free layer norm; R7B
rotates queries and keys in sliding-window layers only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...runtime.contract.architecture import Architecture, Config, Key, Row
from ...runtime.contract.hyperparameter import COUNT, REAL, flag, word
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import bias_norm, own_head_norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, NORM, attention
from ..schema.gguf.deviations import OUTPUT, PROJECTION_BIAS, Unread, fixed_head_size
from ..schema.hyperparameters import (
    DECODER,
    HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    LAYER_EPS,
    OWN_HEAD_DIM,
    THETA,
    TOKENS,
    VALUE_DIM,
    WHOLE_ROTARY,
    Windows,
    act,
    frequency_base,
    matrix,
)


def _scaled(config: Config) -> str:
    """The value of rope.scaling.type: GGUF files of these models say "none" explicitly."""
    kind = str(config.scaling["type"])
    return "none" if kind == "default" else kind


KEYS: tuple[Row, ...] = (
    *(row for row in DECODER if row.name != "context"), Key("longest", ("model_max_length", "max_position_embeddings"),
                                                            "context_length", 8192, COUNT),
    Key("context", "max_position_embeddings", (), lambda config: config.longest, COUNT),
    KV_HEADS, INTERMEDIATE, LAYER_EPS, Scaling(), Key("scaled", (), "rope.scaling.type", _scaled, word), act("silu"),
    Key("logits", "logit_scale", "logit_scale", 0.0625, REAL),
)  # fmt: skip
COHERE_KEYS: tuple[Row, ...] = (
    *KEYS, frequency_base(5e5), OWN_HEAD_DIM,
    Key("normed", "use_qk_norm", (), lambda config: config.names != "hf", flag),
)  # fmt: skip
COHERE2_KEYS: tuple[Row, ...] = (
    *KEYS, THETA, HEAD_DIM, VALUE_DIM, Key("pattern", ("sliding_window_pattern", "_sliding_window_pattern"), (), 4,
                                           COUNT),
    Windows(lambda config, i: (i + 1) % config.pattern != 0, period=4, usual=4096),
    WHOLE_ROTARY, TOKENS,
)  # fmt: skip
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(), *GATED, *NORM, *HEAD)
NORMS = tuple(
    row for part in "qk" for row in matrix(
        f"layers.{{i}}.attn.{part}_norm", f"model.layers.{{i}}.self_attn.{part}_norm", f"blk.{{i}}.attn_{part}_norm",
        optional=True,
        shape=("heads" if part == "q" else "kv_heads", "head_dim"))
)  # fmt: skip


def settle(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Detect from the weights whether queries and keys are normalized; GGUF keys do not record it."""
    config.values["normed"] = "layers.0.attn.q_norm.weight" in weights


def build(net: Decoder) -> None:
    """Parallel layers: attention and gated network read the same norm, and both are added to the residual."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context, interleaved=True)
    windows = config.values.get("windows")
    x = net.begin()
    for i in range(config.layers):
        h = bias_norm(net, x, f"layers.{i}.attn_norm")
        window = windows[i] if windows else None
        layer_rotary = rotary if windows is None or window else None
        y = self_attention(net, h, i, layer_rotary, window=window, normed=own_head_norm)
        x = net.Add(x, net.Add(y, gated(net, h, f"layers.{i}.mlp", config.act)))
    net.end(x, bias_norm, change=lambda logits: net.Mul(logits, config.logits))


def _query_norms(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models with norms of queries and fewer layers than Command R+."""
    return None if config.layers >= 64 else Unread(r"\.attn_q_norm\.")(config, names)


ARCHITECTURES = (
    Architecture(
        "cohere",
        "Command R",
        ("cohere",),
        ("command-r",),
        COHERE_KEYS,
        (*WEIGHTS, *NORMS),
        decoder_tasks(build),
        settle=settle,
        tied=True,
        deviations=(Unread(PROJECTION_BIAS), Unread(OUTPUT), _query_norms),
        defaults={"cohere": {"pad_token_id": 0}},
    ),
    Architecture(
        "cohere2",
        "Command R7B",
        ("cohere2",),
        ("cohere2",),
        COHERE2_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        deviations=(Unread(PROJECTION_BIAS), Unread(OUTPUT), fixed_head_size),
        defaults={"cohere2": {"pad_token_id": 0}},
    ),
)
