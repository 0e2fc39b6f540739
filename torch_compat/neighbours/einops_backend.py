"""The backend of einops for tensors: `rearrange`, `reduce`, `repeat`, `einsum`, `pack` and `unpack` take them.

Source: einops' `_backends.py`, whose `get_backend` searches the subclasses of `AbstractBackend`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ...runtime.plugin.discovery import ROOT
from ...tensors.core.registry import FUNCTIONS
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import arange, as_tensor

NAME = "CandleBackend"
ONE_BY_ONE = ("all", "any", "prod")
"""Reductions of one dim at a time."""
REDUCTIONS = {"min": "amin", "max": "amax", "sum": "sum", "mean": "mean"}
"""Other reductions, and the functions that compute them."""


class Operations:
    """The operations that einops requires of a framework."""

    framework_name = ROOT

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether an object is one of our tensors."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray) -> Tensor:
        """A tensor of an array."""
        return as_tensor(x)

    def to_numpy(self, x: Tensor) -> np.ndarray:
        """The elements of a tensor."""
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """Integers from a start up to a stop."""
        return arange(start, stop)

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        """A reduction along dims."""
        if operation not in ONE_BY_ONE:
            return FUNCTIONS[REDUCTIONS[operation]](x, dim=tuple(axes))
        for axis in sorted(axes, reverse=True):
            x = FUNCTIONS[operation](x, dim=axis)
        return x

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """The dims in another order."""
        return x.permute(*axes)

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors along a new first dim."""
        return FUNCTIONS["stack"](list(tensors))

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """A new dim of length 1."""
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, int]) -> Tensor:
        """New dims, along which the elements repeat."""
        lengths = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            lengths[position] = length
        return x.expand(*lengths)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """A tensor repeated along its dims."""
        return x.repeat(*repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after the other along a dim."""
        return FUNCTIONS["cat"](list(tensors), axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Whether the elements are floats."""
        return x.dtype.kind == "float"

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        """Sums of products by a pattern."""
        return FUNCTIONS["einsum"](pattern, *x)


def register(backends: ModuleType) -> None:
    """Let einops find the backend.

    Args:
        backends: its module `einops._backends`, which keeps the class.
    """
    vars(backends)[NAME] = type(NAME, (Operations, backends.AbstractBackend), {"__doc__": Operations.__doc__})
