"""Mamba (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba: selective state-space layers, no attention."""

from __future__ import annotations

from ...runtime.contract.architecture import HF, Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.norm import norm
from ..layers.recurrent.mamba import (
    EMBED,
    END,
    INNER,
    MIXER,
    MIXER_NORM,
    PREFIXES,
    STATE_SPACE,
    Rank,
    named,
    selective_mixer,
    selective_weights,
)
from ..schema.gguf.deviations import RECURRENT_BIAS, Unread, fixed_inner_size
from ..schema.gguf.required import CONVOLUTION_BIAS

KEYS = (
    *STATE_SPACE, INNER, Key("state", ("state_size", "ssm_cfg.d_state"), "ssm.state_size", 16, COUNT), Rank(),
    Key("steps", (), (), lambda config: config.rank + 2 * config.state),
    Key("normed", (), "ssm.dt_b_c_rms", False, flag),
)  # fmt: skip
FALCON_KEYS = (
    *KEYS[:-1], Key("normed", (), "ssm.dt_b_c_rms", True, flag),
    Key("inner_eps", "mixer_rms_eps", (), lambda config: 1e-6 if config.names == HF else config.eps, NOT_NEGATIVE),
)  # fmt: skip

WEIGHTS = (*EMBED, *MIXER_NORM, *selective_weights(MIXER), *END)


def build(net: Decoder) -> None:
    """Layers of one mixer each."""
    x = net.begin()
    for i in range(net.config.layers):
        x = net.Add(x, selective_mixer(net, norm(net, x, f"layers.{i}.norm"), i))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "mamba",
        "Mamba",
        ("mamba",),
        ("mamba",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        prefixes=PREFIXES,
        tied=True,
        implied=lambda source, graph: named(source, "Mamba1", "mamba"),
        accepts=lambda source: not source.get("mamba.ssm.dt_b_c_rms"),
        gguf_required=CONVOLUTION_BIAS,
        deviations=(Unread(RECURRENT_BIAS), fixed_inner_size),
    ),
    Architecture(
        "falcon_mamba",
        "Falcon Mamba",
        ("falcon_mamba",),
        ("mamba",),
        FALCON_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        prefixes=PREFIXES,
        tied=True,
        gguf_required=CONVOLUTION_BIAS,
        deviations=(Unread(RECURRENT_BIAS), fixed_inner_size),
    ),
)
