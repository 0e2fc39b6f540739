"""Compiled encoders of block types; these modules import Numba, so they are only loaded to compile what is not on the
disk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.jit.code_cache import CachedKernel
from ....runtime.tensor.block_codec import Encoder


def compiled(plain: str, weighted: str | None = None, lattice: Callable[[], tuple[np.ndarray, ...]] = tuple) -> Encoder:
    """The encoder whose kernels are ``module.name`` of this package: without importance, and with it where that is
    another one."""
    kernels = [
        CachedKernel(f"{__name__}.{module}", kernel)
        for module, _, kernel in (each.partition(".") for each in (plain, weighted or plain))
    ]
    return Encoder(kernels[0], kernels[1] if weighted is not None else kernels[0], lattice)
