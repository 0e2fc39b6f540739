"""Conversion of what users give as data to arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError, UsageValueError
from ...runtime.tensor.dtype import DType, of_numpy
from ...runtime.tensor.stored_tensor import StoredTensor
from .promotion import DEFAULT, dtype_of_scalar, named
from .tensor import Tensor

AS_COMPLEX = "Pass dtype=cc.complex64"


def array_of(data: Any, dtype: Any = None, *, copy: bool = False) -> np.ndarray:
    """The elements of numbers, nested lists, arrays and tensors; Python's floats in the default dtype, and block types
    as f32.

    Raises UsageError for anything else.
    """
    if isinstance(data, StoredTensor):
        data = (data if data.qtype is None else data.dequantize("f32")).numpy()
    elif isinstance(data, Tensor):
        data = data.array()
    elif hasattr(data, "detach"):
        data = array_of_dlpack(data.detach())
    elif hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray):
        data = np.from_dlpack(data)
    if isinstance(data, np.ndarray | np.generic):
        wanted = of_numpy(data.dtype) if dtype is None else named(dtype)
        return np.array(data, wanted.as_numpy(), copy=True if copy else None)
    try:
        array = np.array(_plain(data))
    except ValueError as error:
        raise UsageValueError("E-TENSOR-DATA", None, f"the lists are not of one shape ({error})") from error
    if array.dtype.kind not in "biufc" and array.size:
        raise UsageError("E-TENSOR-DATA", None, f"{type(data).__name__} is not numbers, nested lists or an array")
    if dtype is not None:
        wanted = named(dtype)
        if array.dtype.kind == "c" and not wanted.is_complex:
            raise UsageError("E-TENSOR-VALUE", None, f"complex numbers in a tensor of {wanted}", hint=AS_COMPLEX)
        return array.astype(wanted.as_numpy())
    return array.astype(_dtype_of(array, data).as_numpy(), copy=False)


def _plain(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.array()
    return [_plain(item) for item in data] if isinstance(data, list | tuple) else data


def _dtype_of(array: np.ndarray, data: Any) -> DType:
    """The dtype of Python numbers; arrays and tensors in lists keep theirs."""
    first = data
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if isinstance(first, np.ndarray | np.generic | Tensor):
        return of_numpy(array.dtype)
    return DEFAULT.dtype if not array.size or array.dtype.kind == "f" else dtype_of_scalar(array.dtype.type)


def array_of_dlpack(data: Any) -> np.ndarray:
    """An array that shares memory with anything that speaks DLPack; bf16 of torch too."""
    try:
        if str(getattr(data, "dtype", "")) == "torch.bfloat16":
            import ml_dtypes

            return np.from_dlpack(data.view(sys.modules["torch"].int16)).view(ml_dtypes.bfloat16)
        return np.from_dlpack(data)
    except (AttributeError, BufferError, RuntimeError, TypeError) as error:
        raise UsageError("E-TENSOR-DATA", None, f"{type(data).__name__} cannot be taken by DLPack ({error})") from error
