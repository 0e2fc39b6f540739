"""Compiled encoders of block types; the modules import Numba and are loaded only to compile code that is not cached."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.jit.code_cache import CachedKernel
from ....runtime.tensor.block_codec import Encoder


def compiled(plain: str, weighted: str | None = None, lattice: Callable[[], tuple[np.ndarray, ...]] = tuple) -> Encoder:
    """The encoder with the kernels ``module.name`` of this package; `weighted` is the kernel with importance, if it
    differs."""
    kernels = [
        CachedKernel(f"{__name__}.{module}", kernel)
        for module, _, kernel in (each.partition(".") for each in (plain, weighted or plain))
    ]
    return Encoder(kernels[0], kernels[1] if weighted is not None else kernels[0], lattice)
