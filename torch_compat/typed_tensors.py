"""Classes of tensors by dtype, as `cc.LongTensor`: they make tensors, and `isinstance` knows them."""

from __future__ import annotations

from typing import Any

from ..runtime.tensor.dtype import DType, dtype_named
from ..tensors.core.tensor import Tensor
from ..tensors.operations.creation import as_tensor, zeros
from ..tensors.operations.properties import TYPE_NAMES


class TensorType:
    """One of these classes: ``LongTensor([1, 2])`` has these elements, ``LongTensor(2, 3)`` is a tensor of this shape.

    Attributes:
        dtype: of its tensors.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.dtype: DType = next(dtype_named(dtype) for dtype, other in TYPE_NAMES.items() if other == name)

    @property
    def name(self) -> str:
        """The name of the dtype."""
        return self.dtype.name

    def __call__(self, *given: Any) -> Tensor:
        if len(given) == 1 and not isinstance(given[0], int):
            return as_tensor(given[0], self.dtype)
        return zeros(*given, dtype=self.dtype) if given else zeros(0, dtype=self.dtype)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is self.dtype

    def __repr__(self) -> str:
        return f"<class 'torch.{self.__name__}'>"


FloatTensor = TensorType("FloatTensor")
DoubleTensor = TensorType("DoubleTensor")
HalfTensor = TensorType("HalfTensor")
BFloat16Tensor = TensorType("BFloat16Tensor")
LongTensor = TensorType("LongTensor")
IntTensor = TensorType("IntTensor")
ShortTensor = TensorType("ShortTensor")
CharTensor = TensorType("CharTensor")
ByteTensor = TensorType("ByteTensor")
BoolTensor = TensorType("BoolTensor")
