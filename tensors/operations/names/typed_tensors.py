"""Classes of tensors by dtype, as `cc.LongTensor`: they make tensors, and `isinstance` knows them."""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.tensor.dtype import DType, dtype_named
from ...core.lazy_tensor import LazyTensor
from ...core.registry import function, method
from .. import shape
from ..creation import as_tensor, zeros

CLASSES = {
    "FloatTensor": "f32", "DoubleTensor": "f64", "HalfTensor": "f16", "BFloat16Tensor": "bf16", "LongTensor": "i64",
    "IntTensor": "i32", "ShortTensor": "i16", "CharTensor": "i8", "ByteTensor": "u8", "BoolTensor": "bool",
}  # fmt: skip
"""Dtypes by the names of the classes."""
NAMES = {dtype: f"torch.{name}" for name, dtype in CLASSES.items()}


class TensorType:
    """One of these classes: ``LongTensor([1, 2])`` has these elements, ``LongTensor(2, 3)`` is a tensor of this shape.

    Attributes:
        dtype: of its tensors.
    """

    def __init__(self, name: str, dtype: DType) -> None:
        self.__name__ = name
        self.dtype = dtype

    @property
    def name(self) -> str:
        """The name of the dtype."""
        return self.dtype.name

    def __call__(self, *given: Any) -> LazyTensor:
        if len(given) == 1 and not isinstance(given[0], int):
            return as_tensor(given[0], self.dtype)
        return zeros(*given, dtype=self.dtype) if given else zeros(0, dtype=self.dtype)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, LazyTensor) and instance.dtype is self.dtype

    def __repr__(self) -> str:
        return f"<class 'torch.{self.__name__}'>"


for _name, _dtype in CLASSES.items():
    function(_name)(TensorType(_name, dtype_named(_dtype)))


@method("type")
def type_(self: LazyTensor, dtype: Any = None, **options: Any) -> Any:
    """The name of the class of this tensor's dtype, as ``torch.FloatTensor``; with a dtype the tensor in that dtype."""
    if dtype is not None:
        return shape.to(self, dtype, **options)
    if self.dtype.name not in NAMES:
        raise UsageError("E-TENSOR-DTYPE", None, f"{self.dtype} has no class of tensors", hint="Read dtype")
    return NAMES[self.dtype.name]
