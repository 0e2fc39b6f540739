"""`cc.random`: the default generator of random numbers, by PyTorch's names."""

from __future__ import annotations

from .operations.names.settings import fork_rng as fork_rng
from .operations.names.settings import get_rng_state as get_rng_state
from .operations.names.settings import initial_seed as initial_seed
from .operations.names.settings import seed as seed
from .operations.names.settings import set_rng_state as set_rng_state
from .operations.random import manual_seed as manual_seed
