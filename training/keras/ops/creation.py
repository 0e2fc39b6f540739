"""New tensors by Keras' names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....tensors.core.tensor import Tensor
from ..core.symbolic import KerasTensor
from .operation import operation, ours, tensor_of

__all__ = [
    "arange", "array", "convert_to_numpy", "convert_to_tensor", "copy", "empty", "empty_like", "eye", "full",
    "full_like", "identity", "is_tensor", "linspace", "logspace", "multi_hot", "one_hot", "ones", "ones_like", "tri",
    "zeros", "zeros_like",
]  # fmt: skip


def convert_to_tensor(x: Any, dtype: Any = None, sparse: bool | None = None, ragged: bool | None = None) -> Tensor:
    """A tensor of an array, a number or nested ones."""
    found = tensor_of(x)
    if dtype is None and isinstance(x, int) and not isinstance(x, bool):
        dtype = "i32"
    return found if dtype is None else found.to(dtype)


def array(x: Any, dtype: Any = None) -> Tensor:
    """`convert_to_tensor`."""
    return convert_to_tensor(x, dtype)


def convert_to_numpy(x: Any) -> np.ndarray:
    """The elements as an array."""
    return tensor_of(x).detach().array().copy()


def is_tensor(x: Any) -> bool:
    """Whether it is a tensor, symbolic ones among them."""
    return isinstance(x, Tensor | KerasTensor)


@operation
def copy(x: Any) -> Tensor:
    """The elements in a tensor of their own."""
    return tensor_of(x).clone()


def zeros(shape: Any, dtype: Any = None) -> Tensor:
    """Zeros of a shape, f32 by default."""
    return ours("zeros")(shape, dtype=dtype or "f32")


def ones(shape: Any, dtype: Any = None) -> Tensor:
    """Ones of a shape, f32 by default."""
    return ours("ones")(shape, dtype=dtype or "f32")


def empty(shape: Any, dtype: Any = None) -> Tensor:
    """Zeros: a tensor whose elements are of no meaning."""
    return zeros(shape, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """One value in a shape, f32 by default."""
    value = tensor_of(fill_value).to(dtype or "f32")
    return value.expand((shape,) if isinstance(shape, int) else tuple(shape)).clone()


@operation
def zeros_like(x: Any, dtype: Any = None) -> Tensor:
    """Zeros in the shape of a tensor."""
    tensor = tensor_of(x)
    return zeros(tensor.shape, dtype or tensor.dtype)


@operation
def ones_like(x: Any, dtype: Any = None) -> Tensor:
    """Ones in the shape of a tensor."""
    tensor = tensor_of(x)
    return ones(tensor.shape, dtype or tensor.dtype)


@operation
def empty_like(x: Any, dtype: Any = None) -> Tensor:
    """`zeros_like`."""
    tensor = tensor_of(x)
    return zeros(tensor.shape, dtype or tensor.dtype)


@operation
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """One value in the shape of a tensor."""
    tensor = tensor_of(x)
    return full(tensor.shape, fill_value, dtype or tensor.dtype)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    """Numbers from `start` to before `stop`: i32 of integers, f32 of floats."""
    first, end = (0, start) if stop is None else (start, stop)
    by = 1 if step is None else step
    kind = dtype or ("f32" if any(isinstance(each, float) for each in (first, end, by)) else "i32")
    return ours("arange")(first, end, by).to(kind)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0,
) -> Any:  # fmt: skip
    """Numbers at equal distances, f32 by default; with `retstep` the distance, too."""
    found, step = np.linspace(np.asarray(start), np.asarray(stop), num, endpoint=endpoint, retstep=True, axis=axis)
    values = tensor_of(found).to(dtype or "f32")
    return (values, tensor_of(step).to("f32")) if retstep else values


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: float = 10, dtype: Any = None, axis: int = 0
) -> Tensor:
    """Numbers whose logarithms are at equal distances, f32 by default."""
    return tensor_of(np.logspace(start, stop, num, endpoint, base, axis=axis)).to(dtype or "f32")


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:  # noqa: N803
    """Ones on a diagonal, f32 by default."""
    return tensor_of(np.eye(N, M, k)).to(dtype or "f32")


def identity(n: int, dtype: Any = None) -> Tensor:
    """`eye` of a square."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:  # noqa: N803
    """Ones on a diagonal and below, f32 by default."""
    return tensor_of(np.tri(N, M, k)).to(dtype or "f32")


@operation
def one_hot(x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Tensor:
    """1 at the index of each class along a new axis, f32 by default; classes out of range have zeros."""
    classes = tensor_of(x).long()
    found = classes.unsqueeze(-1) == ours("arange")(num_classes)
    return (found if axis == -1 else found.movedim(-1, axis)).to(dtype or "f32")


@operation
def multi_hot(inputs: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Tensor:
    """1 at the indices of all classes of a row, f32 by default."""
    classes = tensor_of(inputs).long()
    found = (classes.unsqueeze(-1) == ours("arange")(num_classes)).any(-2)
    return (found if axis == -1 else found.movedim(-1, axis)).to(dtype or "f32")
