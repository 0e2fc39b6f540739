"""Mamba (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba: selective state-space layers, no attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, value_at
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, checked, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.mamba import (
    EMBED,
    END,
    INNER,
    MIXER,
    MIXER_NORM,
    PREFIXES,
    STATE_SPACE,
    named,
    selective_mixer,
    selective_weights,
)
from ..layers.norm import norm


@dataclass(frozen=True)
class Rank:
    """Hyper-parameter: rank of the time-step projection; "auto" means a sixteenth of the hidden size."""

    name: str = "rank"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "time_step_rank" if names == HF else "ssm.time_step_rank"
        said = source.get(key, value_at(source, "ssm_cfg.dt_rank")) if names == HF else source[key]
        rank: int = -(-config.hidden // 16) if said is None or said == "auto" else checked(key, said, COUNT)
        return rank

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"time_step_rank" if names == HF else "ssm.time_step_rank": config.rank}


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
        implied=lambda source, graph: named(source, "Mamba1", "mamba"),
        accepts=lambda source: not source.get("mamba.ssm.dt_b_c_rms"),
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
    ),
)
