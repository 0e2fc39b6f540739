"""`cc.random`: the default generator of random numbers, by PyTorch's names."""

from __future__ import annotations

from .operations.random import manual_seed as manual_seed
from .operations.settings import fork_rng as fork_rng
from .operations.settings import get_rng_state as get_rng_state
from .operations.settings import initial_seed as initial_seed
from .operations.settings import seed as seed
from .operations.settings import set_rng_state as set_rng_state

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def __dir__() -> list[str]:
    return list(__all__)
