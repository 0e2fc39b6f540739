"""Gemma 1, 2 and 3, text only (arXiv:2403.08295, 2408.00118, 2503.19786): norms with weight + 1, scaled embeddings,
alternating sliding-window layers; and EmbeddingGemma (arXiv:2509.20354), whose tokens attend to all others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import FEATURE_EXTRACTION, HF, Architecture, Config, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, POSITIVE, Integer, flag, word
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.linear import capped
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import TWO_ROPES, Rotary, Scaling, rotaries
from ..schema.decoder_weights import EMBED, GATED, HEAD, attention
from ..schema.gguf.deviations import BIAS, OUTPUT, Unread
from ..schema.hyperparameters import (
    DECODER,
    GEMMA_ACT,
    HEADS,
    INTERMEDIATE,
    POOLING_KEY,
    RMS_EPS,
    THETA,
    Windows,
    act,
    matrix,
)
from ..schema.weight_layout import Plus


def _query_scalar(config: Config, layers: int) -> int:
    """Default of ``query_pre_attn_scalar``, which no GGUF file stores: the 27B model is recognized by its number of
    `layers`."""
    if config.names == HF:
        return 256
    return int(config.hidden // config.heads if config.layers == layers else config.head_dim)


def _integral(value: Any) -> float:
    """A positive number, as an int if it is integral: transformers rejects a float there."""
    found = POSITIVE(value)
    return int(found) if found.is_integer() else found


KEYS = (*DECODER, *HEADS, INTERMEDIATE, RMS_EPS)
GEMMA_KEYS = (*KEYS, act("gelu_tanh"), THETA, Scaling())
GEMMA2_KEYS = (
    *KEYS, GEMMA_ACT, THETA, Scaling(), Windows(lambda config, i: i % 2 == 0, period=2, usual=4096),
    Key("query_scalar", "query_pre_attn_scalar", (), lambda config: _query_scalar(config, 46), _integral),
    Key("attention_cap", "attn_logit_softcapping", "attn_logit_softcapping", 50.0, NOT_NEGATIVE, null=0.0),
    Key("logit_cap", "final_logit_softcapping", "final_logit_softcapping", 30.0, NOT_NEGATIVE, null=0.0),
)  # fmt: skip
GEMMA3_KEYS = (
    *KEYS,
    GEMMA_ACT,
    Key("pattern", ("sliding_window_pattern", "_sliding_window_pattern"), (), 6, COUNT),
    Windows(lambda config, i: (i + 1) % config.pattern != 0, period=6, usual=4096),
    *TWO_ROPES,
    Key("query_scalar", "query_pre_attn_scalar", (), lambda config: _query_scalar(config, 62), _integral),
    Key("both_ways", "use_bidirectional_attention", (), False, flag),
    Key("attention_cap", (), (), 0.0, NOT_NEGATIVE),
    Key("logit_cap", "final_logit_softcapping", "final_logit_softcapping", None, NOT_NEGATIVE),
)

LAYER = (
    *matrix(
        "layers.{i}.attn_norm",
        "model.layers.{i}.input_layernorm",
        "blk.{i}.attn_norm",
        hf_layout=Plus(1),
        shape=("hidden",),
    ),
    *attention(),
    *GATED,
)
END = (*matrix("norm", "model.norm", "output_norm", hf_layout=Plus(1), shape=("hidden",)), *HEAD)
WEIGHTS = (
    *EMBED,
    *LAYER,
    *matrix(
        "layers.{i}.mlp_norm",
        "model.layers.{i}.post_attention_layernorm",
        "blk.{i}.ffn_norm",
        hf_layout=Plus(1),
        shape=("hidden",),
    ),
    *END,
)
GEMMA2_WEIGHTS = (
    *EMBED, *LAYER,
    *matrix("layers.{i}.after_attn", "model.layers.{i}.post_attention_layernorm", "blk.{i}.post_attention_norm",
            hf_layout=Plus(1), shape=("hidden",)),
    *matrix("layers.{i}.mlp_norm", "model.layers.{i}.pre_feedforward_layernorm", "blk.{i}.ffn_norm", hf_layout=Plus(1),
            shape=("hidden",)),
    *matrix("layers.{i}.after_mlp", "model.layers.{i}.post_feedforward_layernorm", "blk.{i}.post_ffw_norm",
            hf_layout=Plus(1), shape=("hidden",)),
    *END,
)  # fmt: skip
GEMMA3_WEIGHTS = (
    *GEMMA2_WEIGHTS,
    *matrix(
        "layers.{i}.attn.q_norm",
        "model.layers.{i}.self_attn.q_norm",
        "blk.{i}.attn_q_norm",
        hf_layout=Plus(1),
        shape=("head_dim",),
    ),
    *matrix(
        "layers.{i}.attn.k_norm",
        "model.layers.{i}.self_attn.k_norm",
        "blk.{i}.attn_k_norm",
        hf_layout=Plus(1),
        shape=("head_dim",),
    ),
)


@dataclass(frozen=True)
class DenseSize(Key):
    """Hyper-parameter: input or output size of a Dense module after the pooling, 0 without one."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return super().write(names, config) if getattr(config, self.name) else {}


UNSTATED = ("task", "logit_cap", "query_scalar", "both_ways")
"""Rows of Gemma 3 that are other ones for EmbeddingGemma: llama.cpp scales its scores by the size of the heads."""
EMBEDDING_KEYS = (
    Key("task", (), (), FEATURE_EXTRACTION, word),
    Key("pooling", (), POOLING_KEY, 1, Integer(-1, 4)),
    *(row for row in GEMMA3_KEYS if row.name not in UNSTATED),
    Key(
        "query_scalar", "query_pre_attn_scalar", (), lambda config: _query_scalar(config, config.layers + 1), _integral
    ),
    Key("both_ways", "use_bidirectional_attention", (), True, flag),
    Key("logit_cap", "final_logit_softcapping", (), None, NOT_NEGATIVE),
    *(
        DenseSize(f"dense_{number}_{side}", (), f"dense_{number}_feat_{side}", 0)
        for number in (2, 3)
        for side in ("in", "out")
    ),
)
"""Pooling by the mean, unless the file says otherwise."""
EMBEDDING_WEIGHTS = (
    *GEMMA3_WEIGHTS,
    *(
        Weight(
            f"dense_{number}.weight",
            (),
            f"dense_{number}.weight",
            shape=(f"dense_{number}_out", f"dense_{number}_in"),
            optional=True,
        )
        for number in (2, 3)
    ),
)
"""Dense modules, which have files of their own but for GGUF."""


def build_gemma(net: Decoder) -> None:
    """Gemma 1: a Llama with scaled embeddings."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin(scale=math.sqrt(config.hidden))
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


def build_gemma2(net: Decoder) -> None:
    """Gemma 2 and 3: norms before and after each block, sliding windows in some layers. Gemma 3 normalizes queries and
    keys and gives local layers their own RoPE base; Gemma 2 soft-caps scores and logits."""
    config = net.config
    whole, local = rotaries(config)
    scores = Scores(scale=config.query_scalar**-0.5, softcap=config.attention_cap or 0.0)
    x = net.begin(scale=math.sqrt(config.hidden))
    for i, window in enumerate(config.windows):
        y = norm(net, x, f"layers.{i}.attn_norm")
        y = self_attention(net, y, i, local if window else whole, window=window, scores=scores)
        x = net.Add(x, norm(net, y, f"layers.{i}.after_attn"))
        y = gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act)
        x = net.Add(x, norm(net, y, f"layers.{i}.after_mlp"))
    net.end(x, norm, change=lambda logits: capped(net, logits))


GEMMA3_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
    },
}  # fmt: skip

GEMMA3_OWN_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "pad_token_id": 0}
}


def embeds_both_ways(source: Mapping[str, Any]) -> bool:
    """Whether a config.json of Gemma 3 is an embedding model's, whose tokens attend to all others."""
    classes = source.get("architectures")
    stem = not isinstance(classes, list) or not classes or str(classes[0]).endswith("Model")
    return source.get("use_bidirectional_attention") is True and stem


def is_embedding(source: Mapping[str, Any]) -> bool:
    """Whether a configuration is EmbeddingGemma's; GGUF files name the architecture."""
    return "model_type" not in source or embeds_both_ways(source)


def needed_windows(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models without sliding windows, which llama.cpp does not load."""
    if any(config.windows):
        return None
    return "does not load models of this architecture without sliding windows"


ARCHITECTURES = (
    Architecture(
        "gemma",
        "Gemma",
        ("gemma",),
        ("gemma",),
        GEMMA_KEYS,
        WEIGHTS,
        decoder_tasks(build_gemma),
        tied=True,
        deviations=(Unread(BIAS), Unread(OUTPUT)),
        defaults={"gemma": {"head_dim": 256, "max_position_embeddings": 8192, "pad_token_id": 0}},
    ),
    Architecture(
        "gemma2",
        "Gemma 2",
        ("gemma2",),
        ("gemma2",),
        GEMMA2_KEYS,
        GEMMA2_WEIGHTS,
        decoder_tasks(build_gemma2),
        tied=True,
        deviations=(Unread(BIAS), Unread(OUTPUT)),
        wide_activations=True,
        defaults={
            "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192, "pad_token_id": 0}
        },
    ),
    Architecture(
        "gemma3",
        "Gemma 3, text",
        ("gemma3_text",),
        ("gemma3",),
        GEMMA3_KEYS,
        GEMMA3_WEIGHTS,
        decoder_tasks(build_gemma2),
        accepts=lambda source: not embeds_both_ways(source),
        tied=True,
        deviations=(Unread(BIAS),),
        wide_activations=True,
        nested_defaults=GEMMA3_DEFAULTS,
        defaults=GEMMA3_OWN_DEFAULTS,
    ),
    Architecture(
        "gemma_embedding",
        "EmbeddingGemma",
        ("gemma3_text",),
        ("gemma-embedding",),
        EMBEDDING_KEYS,
        EMBEDDING_WEIGHTS,
        tuple(task for task in decoder_tasks(build_gemma2) if task.name == FEATURE_EXTRACTION),
        accepts=is_embedding,
        tied=True,
        deviations=(Unread(BIAS), needed_windows),
        wide_activations=True,
        nested_defaults=GEMMA3_DEFAULTS,
        defaults=GEMMA3_OWN_DEFAULTS,
    ),
)
