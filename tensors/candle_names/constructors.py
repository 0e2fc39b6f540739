"""Constructors that candle has on the class: ``Tensor.zeros((2, 3), device=device)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.tensor.dtype import DType
from ..core.device import TYPES, Device
from ..core.registry import constructor
from ..core.tensor import Tensor
from ..operations import creation, joining, random
from ..operations.operands import lengths_of
from ..writes import shared_memory


def _settings(given: Sequence[Any], dtype: Any, device: Any) -> tuple[list[Any], Any, Any]:
    """Positional arguments without dtype and device, which candle has last, and these."""
    numbers = []
    for item in given:
        if isinstance(item, Device) or (isinstance(item, str) and item.partition(":")[0] in TYPES):
            device = item
        elif isinstance(item, DType | str):
            dtype = item
        else:
            numbers.append(item)
    creation.check_device(device)
    return numbers, dtype, device


@constructor()
def zeros(*size: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros of a shape, given as one sequence or as lengths one by one; dtype and device may follow it."""
    lengths, dtype, _ = _settings(size, dtype, device)
    return creation.zeros(*lengths, dtype=dtype)


@constructor()
def ones(*size: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones of a shape, given as one sequence or as lengths one by one; dtype and device may follow it."""
    lengths, dtype, _ = _settings(size, dtype, device)
    return creation.ones(*lengths, dtype=dtype)


def _bounded(given: Sequence[Any], dtype: Any, device: Any) -> tuple[tuple[float, float], Sequence[int], Any]:
    """The two numbers that candle has before a shape, 0 and 1 without them, the shape, and the dtype."""
    numbers, dtype, _ = _settings(given, dtype, device)
    if len(numbers) > 2 and (not isinstance(numbers[2], int) or any(isinstance(each, float) for each in numbers[:2])):
        return (numbers[0], numbers[1]), lengths_of(numbers[2:]), dtype
    return (0.0, 1.0), lengths_of(numbers), dtype


@constructor()
def randn(*given: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Normal random numbers of a shape: ``randn((2, 3))``, or with mean and standard deviation before the shape:
    ``randn(0.0, 1.0, (2, 3), device)``."""
    (mean, std), size, dtype = _bounded(given, dtype, device)
    return random.randn(*size, dtype=dtype) * std + mean


@constructor()
def rand(*given: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Uniform random numbers of a shape: ``rand((2, 3))``, or with bounds before the shape:
    ``rand(-1.0, 1.0, (2, 3), device)``."""
    (low, high), size, dtype = _bounded(given, dtype, device)
    return random.rand(*size, dtype=dtype) * (high - low) + low


@constructor()
def arange(*given: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from a start up to an end, which is left out; dtype and device may follow them."""
    numbers, dtype, _ = _settings(given, dtype, device)
    named = dict(zip(("start", "end", "step"), numbers, strict=False))
    return creation.arange(**named, dtype=dtype)


@constructor()
def from_numpy(array: np.ndarray, device: Any = None) -> Tensor:
    """A tensor of an array, whose memory it shares."""
    creation.check_device(device)
    return shared_memory.from_numpy(array)


@constructor()
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along a dim."""
    return joining.cat(tensors, dim)


@constructor()
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors side by side along a new dim."""
    return joining.stack(tensors, dim)
