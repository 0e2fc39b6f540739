"""Noise of pictures: a stream of normal numbers from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import did_you_mean
from ....tensors.operations.random import Generator
from .text_to_image import Floats

TORCH, NUMPY = "torch", "numpy"
KINDS = (TORCH, NUMPY)
"""Streams: the numbers of PyTorch on the CPU for a seed, as diffusers draws them, or those of NumPy's PCG64."""
MOST_SEED = 2**32 - 1


class NoiseStream:
    """Standard normal numbers that follow from a seed; UsageError for an unknown kind or a seed that is out of range.

    Args:
        kind: of `KINDS`.
    """

    def __init__(self, kind: str, seed: int) -> None:
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS, " or ".join(KINDS))
            raise UsageError("E-OPTION", None, f"unknown noise {kind!r}", hint=hint)
        if not 0 <= seed <= MOST_SEED:
            raise UsageError("E-OPTION", None, "the seed is out of range", expected=f"0 to {MOST_SEED}", found=seed)
        self._torch = Generator().manual_seed(seed) if kind == TORCH else None
        self._numpy = np.random.default_rng(seed)

    def normal(self, shape: Sequence[int]) -> Floats:
        """The next numbers, f32 of a shape."""
        if self._torch is not None:
            return self._torch.normal(int(np.prod(shape)), np.dtype(np.float32)).reshape(shape)
        return self._numpy.standard_normal(shape, np.float32)


def normal(streams: Sequence[NoiseStream], shape: Sequence[int]) -> Floats:
    """The next numbers of a row of streams, [streams, *shape]; each stream draws [1, *shape]."""
    return np.concatenate([stream.normal((1, *shape)) for stream in streams])
