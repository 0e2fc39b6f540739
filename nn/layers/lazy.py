"""Layers that know their input's width when they are first called, and become ordinary layers then."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.tensor import Tensor
from ..core.module import Module
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class _Lazy(Module):
    """Takes the arguments of `becomes` but the first one. Call the model once before its parameters are used.

    Attributes:
        becomes: the class of layers.
        trailing: dims of the input after the one whose length is the layer's first argument.
    """

    __signature__: inspect.Signature
    becomes: Callable[..., Module]
    trailing = 0

    def __init_subclass__(cls) -> None:
        """Show the arguments that are left."""
        own = inspect.signature(cls.becomes)
        cls.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__()
        self.given, self.options = given, options

    def forward(self, input: Tensor, *others: Any) -> Any:
        """Compute the output of the layer that this one has become."""
        if input.ndim <= self.trailing:
            why = f"{type(self).__name__} of a tensor of shape {list(input.shape)}"
            raise UsageError("E-NN-SHAPE", None, why, expected=f"at least {counted(self.trailing + 1, 'dim')}")
        layer: Any = self.becomes(input.shape[-1 - self.trailing], *self.given, **self.options)
        layer.train(self.training)
        for name in ("_pre_hooks", "_hooks", "_backward_hooks"):
            object.__setattr__(layer, name, self.__dict__[name])
        vars(self).clear()
        vars(self).update(vars(layer))
        object.__setattr__(self, "__class__", self.becomes)
        return self.forward(input, *others)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """UsageError: the first call makes the parameters."""
        why = f"{type(self).__name__} has no parameters before its first call"
        raise UsageError("E-NN-STATE", None, why, hint="Call the model once")


def _lazy(becomes: type[Module], trailing: int) -> Any:
    name = f"Lazy{becomes.__name__}"
    document = f"{becomes.__name__} without its first argument, which is the length of a dim of the first input."
    return type(name, (_Lazy,), {"becomes": becomes, "trailing": trailing, "__doc__": document, "__module__": __name__})


LazyLinear = _lazy(Linear, 0)
LazyConv1d = _lazy(Conv1d, 1)
LazyConv2d = _lazy(Conv2d, 2)
LazyConv3d = _lazy(Conv3d, 3)
LazyConvTranspose1d = _lazy(ConvTranspose1d, 1)
LazyConvTranspose2d = _lazy(ConvTranspose2d, 2)
LazyConvTranspose3d = _lazy(ConvTranspose3d, 3)
LazyInstanceNorm1d = _lazy(InstanceNorm1d, 1)
LazyInstanceNorm2d = _lazy(InstanceNorm2d, 2)
LazyInstanceNorm3d = _lazy(InstanceNorm3d, 3)
LazyBatchNorm2d = _lazy(BatchNorm2d, 2)
LazyBatchNorm3d = _lazy(BatchNorm3d, 3)


class LazyBatchNorm1d(_Lazy):
    """BatchNorm1d without its first argument, which is the length of the second dim of the first input."""

    becomes = BatchNorm1d

    def forward(self, input: Tensor, *others: Any) -> Any:
        """Compute the output of the layer that this one has become."""
        self.trailing = max(input.ndim - 2, 0)
        return super().forward(input, *others)
