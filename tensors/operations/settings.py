"""Settings: how tensors print, threads, and the state of the default generator of random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.autocast import AUTOCAST
from ..core.plan import THREADS
from ..core.printing import PRINTED
from ..core.promotion import category, named
from ..core.registry import function
from ..core.tensor import Tensor
from .creation import made
from .random import GENERATOR

PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}
"""Settings of PyTorch's printing profiles."""


@function()
def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Set how tensors are printed.

    Args:
        precision: digits after the point.
        threshold: elements up to which all are printed.
        edgeitems: how many are printed at both ends of a dim of larger tensors.
        linewidth: characters of a line.
        profile: default, short, or full, which prints all elements.
        sci_mode: False for numbers without exponents, True for exponents.
    """
    if profile is not None:
        if profile not in PROFILES:
            why = f"there is no profile {profile!r} of printing"
            raise UsageError("E-TENSOR-VALUE", None, why, expected=", ".join(PROFILES))
        PRINTED.update(PROFILES[profile], sci_mode=None)
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    PRINTED.update({name: value for name, value in given.items() if value is not None})
    if sci_mode is not None:
        PRINTED["sci_mode"] = sci_mode


@function()
def get_rng_state() -> Tensor:
    """The state of the default generator, as a u8 tensor for `set_rng_state`; it can be saved with others."""
    (_, key, place, *_), following = GENERATOR.get_state()
    numbers = np.array([place, following is not None, following or 0.0, GENERATOR.initial_seed()], np.float64)
    return made(np.concatenate([np.asarray(key, np.uint32).view(np.uint8), numbers.view(np.uint8)]))


@function()
def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a state of `get_rng_state`."""
    given = np.asarray(new_state, np.uint8)
    if given.shape != (624 * 4 + 32,):
        why = f"a tensor of shape {list(given.shape)} is not a state of random numbers"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Pass what get_rng_state() returned")
    place, has_next, following, seed = given[624 * 4 :].view(np.float64)
    key = given[: 624 * 4].view(np.uint32)
    GENERATOR.manual_seed(int(seed))
    GENERATOR.set_state((("MT19937", key, int(place), 0, 0.0), float(following) if has_next else None))


@function()
def initial_seed() -> int:
    """The seed of the default generator."""
    return GENERATOR.initial_seed()


@function()
def seed() -> int:
    """Start the default generator again from a seed that differs from run to run; returns it."""
    chosen = int(np.random.SeedSequence().entropy) & (2**53 - 1)  # type: ignore[arg-type]
    GENERATOR.manual_seed(chosen)
    return chosen


function("default_generator")(GENERATOR)  # type: ignore[type-var]


@function()
@contextlib.contextmanager
def fork_rng(devices: Any = (), enabled: bool = True, **options: Any) -> Iterator[None]:
    """Afterwards the default generator continues as if nothing had been drawn inside."""
    state, seed = GENERATOR.get_state(), GENERATOR.initial_seed()
    try:
        yield
    finally:
        if enabled:
            GENERATOR.manual_seed(seed)
            GENERATOR.set_state(state)


@function()
def get_num_threads() -> int:
    """Number of threads that compute."""
    from ...runtime.plan.kernel_api import cores

    return THREADS.count or cores()


@function()
def set_num_threads(num: int) -> None:
    """Set the number of threads of later plans."""
    if not isinstance(num, int) or num < 1:
        raise UsageError("E-TENSOR-VALUE", None, f"{num!r} is not a number of threads", expected="at least 1")
    THREADS.count = num


@function()
def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Whether products compute in 16 bits, as inside of `autocast`."""
    return AUTOCAST.dtype is not None


@function()
def can_cast(from_: Any, to: Any) -> bool:
    """Whether a dtype's elements may become elements of another by type promotion."""
    return category(named(from_)) <= category(named(to))
