"""Layers of several inputs, which they get in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import ones
from ....tensors.operations.joining import cat
from ..core.layer import Layer

__all__ = [
    "Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract", "add", "average",
    "concatenate", "maximum", "minimum", "multiply", "subtract",
]  # fmt: skip


class _Merge(Layer):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """True where the mask of any input is; None if one of them has no mask."""
        if mask is None or any(each is None for each in mask):
            return None
        first, *others = mask
        for each in others:
            first = first | each
        return first

    def joined(self, items: Sequence[Tensor]) -> Tensor:
        """All inputs as one."""
        first, *others = items
        for each in others:
            first = self.two(first, each)
        return first

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        """Two inputs as one."""
        raise NotImplementedError(f"{type(self).__name__} does not define two()")

    def call(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, list | tuple) or not inputs:
            raise UsageError("E-NN-INPUT", None, f"{type(self).__name__} takes a list of tensors")
        return self.joined(inputs)


class Add(_Merge):
    """The sum."""

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class Subtract(_Merge):
    """The difference of two."""

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        return one - other


class Multiply(_Merge):
    """The product."""

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        return one * other


class Maximum(_Merge):
    """The larger elements."""

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        return one.maximum(other)


class Minimum(_Merge):
    """The smaller elements."""

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        return one.minimum(other)


class Average(_Merge):
    """The mean."""

    def joined(self, items: Sequence[Tensor]) -> Tensor:
        return sum(items[1:], start=items[0]) / len(items)


class Concatenate(_Merge):
    """One after another along an axis."""

    def __init__(self, axis: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Masks one after another, true for inputs without one; along the last axis, true where any is."""
        if mask is None:
            return None
        shown = [ones(*x.shape, dtype="bool") if each is None else each for x, each in zip(inputs, mask, strict=True)]
        pairs = zip(inputs, shown, strict=True)
        full = [each.unsqueeze(-1).expand(x.shape) if each.ndim < x.ndim else each for x, each in pairs]
        return cat(full, self.axis).any(-1)

    def joined(self, items: Sequence[Tensor]) -> Tensor:
        return cat(list(items), self.axis)


class Dot(_Merge):
    """Products of two along an axis of each, which is summed; with `normalize` the cosine."""

    def __init__(self, axes: Any, normalize: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.axes, self.normalize = axes, normalize

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """None: products do not have the inputs' steps."""
        return None

    def two(self, one: Tensor, other: Tensor) -> Tensor:
        first, second = (self.axes, self.axes) if isinstance(self.axes, int) else self.axes
        if self.normalize:
            one, other = (
                each / each.square().sum(axis, True).clamp(min=1e-12).sqrt()
                for each, axis in ((one, first), (other, second))
            )
        if one.ndim == 2 and other.ndim == 2:
            return (one * other).sum(1, True)
        left = one.movedim(first, -1)
        right = other.movedim(second, 1)
        shape = (left.shape[0], *left.shape[1:-1], *right.shape[2:])
        flat = left.reshape(left.shape[0], -1, left.shape[-1]) @ right.reshape(*right.shape[:2], -1)
        return flat.reshape(shape)


def _function(kind: type[_Merge]) -> Any:
    def made(inputs: Any, **options: Any) -> Any:
        return kind(**options)(inputs)

    made.__doc__ = f"`{kind.__name__}` of a list of tensors."
    made.__name__ = made.__qualname__ = kind.__name__.lower()
    return made


add, average, concatenate, maximum = (_function(each) for each in (Add, Average, Concatenate, Maximum))
minimum, multiply, subtract = (_function(each) for each in (Minimum, Multiply, Subtract))
