"""Mamba 2 (Dao and Gu 2024, arXiv:2405.21060): state-space heads with a scalar decay; groups of heads share B and C."""

from __future__ import annotations

import math

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.norm import norm
from ..layers.recurrent.mamba import (
    EMBED,
    END,
    GROUPS,
    MIXER,
    MIXER_NORM,
    PREFIXES,
    STATE_SPACE,
    STEP_LIMITS,
    head_mixer,
    head_weights,
    named,
    quotient,
)
from ..schema.gguf.deviations import RECURRENT_BIAS, Unread
from ..schema.gguf.required import CONVOLUTION_BIAS

KEYS = (
    *STATE_SPACE,
    Key("inner", (), "ssm.inner_size", lambda config: config.expand * config.hidden, COUNT),
    Key("state", ("state_size", "ssm_cfg.d_state"), "ssm.state_size", 128, COUNT),
    Key("mixers", "num_heads", "ssm.time_step_rank", None, COUNT),
    Key(
        "mixer_dim",
        ("head_dim", "ssm_cfg.headdim"),
        (),
        lambda config: config.inner // config.mixers if config.mixers else 64,
        COUNT,
    ),
    Key("mixers", "num_heads", "ssm.time_step_rank", quotient("inner", "mixer_dim"), COUNT),
    Key("groups", ("n_groups", "ssm_cfg.ngroups"), "ssm.group_count", 1, COUNT),
    *GROUPS,
    Key("widths", "time_step_limit", (), [0.0, math.inf], STEP_LIMITS),
)
WEIGHTS = (*EMBED, *MIXER_NORM, *head_weights(MIXER), *END)


def build(net: Decoder) -> None:
    """Layers of one mixer each."""
    x = net.begin()
    for i in range(net.config.layers):
        x = net.Add(x, head_mixer(net, norm(net, x, f"layers.{i}.norm"), i))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture("mamba2", "Mamba 2", ("mamba2",), ("mamba2",), KEYS, WEIGHTS, decoder_tasks(build), prefixes=PREFIXES,
                 implied=lambda source, graph: named(source, "Mamba2", "mamba2"),
                 gguf_required=CONVOLUTION_BIAS,
                 deviations=(Unread(RECURRENT_BIAS),), defaults={"mamba2": {"n_groups": 8}}),
)  # fmt: skip
