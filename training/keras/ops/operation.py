"""Operations: functions that become layers of a model's graph where an argument is symbolic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ....tensors.core.registry import FUNCTIONS
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ..core.layer import Layer, named
from ..core.symbolic import symbolic_tensors


class FunctionLayer(Layer):
    """A function of `keras.ops` as a layer of a graph."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(name=named(function.__name__), **options)
        self.function = function
        self.operation = f"ops.{function.__name__}"
        self.built = True

    def call(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes arrays and tensors, and symbolic tensors, of which it gives symbolic ones."""

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        if symbolic_tensors((arguments, options)):
            return FunctionLayer(function)(*arguments, **options)
        return function(*arguments, **options)

    return called


def tensor_of(x: Any) -> Tensor:
    """A tensor of an array, a number or nested ones; Python's floats are f32."""
    return x if isinstance(x, Tensor) else as_tensor(np.asarray(x) if isinstance(x, np.generic) else x)


def as_floats(x: Any) -> Tensor:
    """A tensor of floats, f32 for integers and booleans."""
    found = tensor_of(x)
    return found if found.dtype.kind in ("float", "complex") else found.to("f32")


def dims_of(axis: Any) -> Any:
    """Axes as our functions take them."""
    return list(axis) if isinstance(axis, tuple) else axis


def named_functions(names: Iterable[str], make: Callable[[str], Callable[..., Any]]) -> dict[str, Any]:
    """Operations of our functions of these names, which `make` adapts."""
    found = {}
    for name in names:
        function = make(name)
        function.__name__ = function.__qualname__ = name
        function.__doc__ = f"`keras.ops.{name}`."
        found[name] = operation(function)
    return found


def ours(name: str) -> Callable[..., Any]:
    """The function of the package of a name."""
    return FUNCTIONS[name]
