"""`cc.Tensor`: the class of both kinds of tensors, those of files and those that compute."""

from __future__ import annotations

from typing import Any

from ...runtime.tensor.dtype import DType
from ...runtime.tensor.tensor import Tensor as FileTensor
from ...tensors.core.lazy_tensor import LazyTensor
from ...tensors.operations.creation import as_tensor, zeros


class _Both(type):
    """``isinstance(x, cc.Tensor)`` for tensors of files, tensors that compute, and parameters."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, FileTensor | LazyTensor)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, FileTensor | LazyTensor)


class Tensor(FileTensor, metaclass=_Both):
    """A tensor of a file: `Tensor(dtype, shape, storage)`, `Tensor.of(array)`; or, as PyTorch's class, one that
    computes: ``Tensor([1, 2])`` has these numbers as f32, ``Tensor(2, 3)`` has this shape."""

    def __new__(cls, *given: Any) -> Any:
        if given and isinstance(given[0], DType):
            return FileTensor(*given)
        if len(given) == 1 and not isinstance(given[0], int):
            return as_tensor(given[0], "f32")
        return zeros(*given) if given else zeros(0)
