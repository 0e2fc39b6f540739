"""Sizes of windows: one number for all dims, or one for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import shape_error
from ...tensors.core.tensor import Tensor

Size = int | Sequence[int]


def per_dim(size: Any, dims: int, what: str = "size") -> tuple[int, ...]:
    """A number repeated, or the numbers themselves."""
    if isinstance(size, int | np.integer):
        return (int(size),) * dims
    found = tuple(int(each) for each in size)
    if len(found) != dims:
        raise UsageError("E-NN-SHAPE", None, f"{what} {list(found)} does not have {dims} numbers")
    return found


def batched(input: Tensor, dims: int, what: str) -> tuple[Tensor, bool]:
    """[N, C, ...] of images with `dims` dims, and whether the batch was added."""
    if input.ndim == dims + 2:
        return input, False
    if input.ndim == dims + 1:
        return input.unsqueeze(0), True
    expected = f"[N, C] or [C] and {dims} more dims"
    raise shape_error(f"{what}: a tensor of shape {list(input.shape)} where {expected} are needed")


def unbatched(output: Tensor, added: bool) -> Tensor:
    """Without the batch that `batched` added."""
    return output.squeeze(0) if added else output


def _pair(size: Any) -> Any:
    """A number twice; PyTorch's name."""
    return (size, size) if isinstance(size, int) else tuple(size)


def _single(size: Any) -> Any:
    """A number as a tuple; PyTorch's name."""
    return (size,) if isinstance(size, int) else tuple(size)


def _triple(size: Any) -> Any:
    """A number three times; PyTorch's name."""
    return (size, size, size) if isinstance(size, int) else tuple(size)
