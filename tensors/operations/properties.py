"""Properties of tensors and dtypes, and constructors of tensors like another one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.promotion import get_default_dtype
from ..core.registry import attribute, function, method, operation
from ..core.tensor import Tensor
from .creation import full, ones, tensor, zeros
from .shape import to

TYPE_NAMES = {
    "f32": "FloatTensor", "f64": "DoubleTensor", "f16": "HalfTensor", "bf16": "BFloat16Tensor", "i64": "LongTensor",
    "i32": "IntTensor", "i16": "ShortTensor", "i8": "CharTensor", "u8": "ByteTensor", "bool": "BoolTensor",
    "c64": "ComplexFloatTensor", "c128": "ComplexDoubleTensor",
}  # fmt: skip
"""PyTorch's classes of tensors by dtype."""


@function()
def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Tensor)


@function("numel")
def _numel(input: Tensor) -> int:
    return input.numel()


@operation()
def is_floating_point(input: Tensor) -> bool:
    """Whether elements are floats."""
    return input.dtype.kind == "float"


@operation()
def is_complex(input: Tensor) -> bool:
    """Whether elements are complex numbers."""
    return input.dtype.kind == "complex"


@operation()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not 0."""
    return bool(input)


@method()
def is_signed(self: Tensor) -> bool:
    """Whether elements can be negative."""
    return self.dtype.name not in ("u8", "u16", "u32", "u64", "bool")


@method()
def element_size(self: Tensor) -> int:
    """Bytes of an element."""
    return self.dtype.as_numpy().itemsize


@method("type")
def type_(self: Tensor, dtype: Any = None, **options: Any) -> Any:
    """The name of the class of this tensor's dtype, as ``torch.FloatTensor``; with a dtype the tensor in that dtype."""
    if dtype is not None:
        return to(self, dtype, **options)
    if self.dtype.name not in TYPE_NAMES:
        raise UsageError("E-TENSOR-DTYPE", None, f"{self.dtype} has no class of tensors", hint="Read dtype")
    return f"torch.{TYPE_NAMES[self.dtype.name]}"


@method("ndimension")
def _ndimension(self: Tensor) -> int:
    return self.ndim


@method("nelement")
def _nelement(self: Tensor) -> int:
    return self.numel()


attribute("itemsize", element_size)
attribute("nbytes", lambda self: self.numel() * element_size(self))
attribute("is_cuda", lambda self: False)
attribute("is_cpu", lambda self: True)


def _grad_fn(self: Tensor) -> str | None:
    """The name of the operator that computes a tensor with gradients, None for leaves."""
    signature = self.expression.signature
    return None if self.is_leaf or signature is None else f"<{signature.op.name}>"


attribute("grad_fn", _grad_fn)


def _as(self: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": self.dtype, **{name: value for name, value in options.items() if value is not None}}


@method("new_empty")
@method()
def new_zeros(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """Zeros in the dtype of this tensor."""
    return zeros(*size, **_as(self, options))


@method()
def new_ones(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """Ones in the dtype of this tensor."""
    return ones(*size, **_as(self, options))


@method()
def new_full(self: Tensor, size: Any, fill_value: Any, **options: Any) -> Tensor:
    """One number in the dtype of this tensor."""
    return full(size, fill_value, **_as(self, options))


@method()
def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """A tensor of data in the dtype of this tensor."""
    return tensor(data, **_as(self, options))


@function()
def finfo(dtype: Any = None) -> Any:
    """Limits of a float dtype, by default of the default one: `min`, `max`, `eps`, `tiny`, `bits`."""
    import ml_dtypes

    return ml_dtypes.finfo((dtype or get_default_dtype()).as_numpy())  # type: ignore[no-untyped-call]


@function()
def iinfo(dtype: Any) -> Any:
    """Limits of an integer dtype: `min`, `max`, `bits`."""
    return np.iinfo(dtype.as_numpy())
