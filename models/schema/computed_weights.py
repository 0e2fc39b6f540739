"""Weights that are computed from those of the file when they are read, in f32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...runtime.tensor.dtype import F32
from ...runtime.tensor.storage import Derived
from ...runtime.tensor.stored_tensor import StoredTensor


def computed(shape: tuple[int, ...], make: Callable[[], np.ndarray]) -> StoredTensor:
    """A tensor f32 whose values are computed when they are read."""

    def read(start: int, stop: int) -> memoryview:
        return np.ascontiguousarray(make(), "<f4").reshape(-1).view(np.uint8)[start:stop].data

    size = 4 * int(np.prod(shape))
    return StoredTensor(F32, shape, Derived(size, max(1, size), read))


def f32(tensor: StoredTensor) -> StoredTensor:
    """A weight in f32; blocks are dequantized."""
    plain = tensor if tensor.qtype is None else tensor.dequantize()
    return plain if plain.dtype.name == "f32" else plain.cast("f32")
