"""Type promotion by PyTorch's rules: of tensors with dims, then of 0-d tensors, then of Python numbers, the highest
category decides, and a lower one counts only where it is of a higher category."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.tensor.dtype import BF16, BOOL, C64, C128, DTYPES, F16, F32, F64, I16, I64, U8, DType, dtype_named

Scalar = bool | int | float | complex
CATEGORIES = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}
UNSUPPORTED = "E-TENSOR-DTYPE"


class _Default:
    """The dtype of floats that are made of Python numbers and of integers."""

    dtype = F32


DEFAULT = _Default()


def set_default_dtype(dtype: Any) -> None:
    """Set the dtype of float tensors that are made of Python numbers."""
    chosen = dtype_named(dtype)
    if chosen.kind != "float":
        raise UsageError(UNSUPPORTED, None, f"the default dtype is a float type, not {chosen}", hint="Use f32 or f64")
    DEFAULT.dtype = chosen


def get_default_dtype() -> DType:
    """The dtype of float tensors that are made of Python numbers."""
    return DEFAULT.dtype


def category(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex."""
    return CATEGORIES[dtype.kind]


def dtype_of_scalar(kind: type) -> DType:
    """The dtype that a Python number has by itself."""
    if issubclass(kind, bool | np.bool_):
        return BOOL
    if issubclass(kind, complex | np.complexfloating):
        return as_complex(DEFAULT.dtype)
    return I64 if issubclass(kind, int | np.integer) else DEFAULT.dtype


def as_complex(dtype: DType) -> DType:
    """The dtype of complex numbers whose parts hold a real dtype; c64 for the narrow and for integers."""
    return C128 if dtype in (F64, C128) else C64


@process_cache
def promote_types(first: DType, second: DType) -> DType:
    """The smallest dtype of the higher category that holds both."""
    if first is second:
        return first
    if "complex" in (first.kind, second.kind):
        return C128 if {first, second} & {F64, C128} else C64
    if category(first) != category(second):
        return first if category(first) > category(second) else second
    if first.kind == "float":
        if {first, second} == {F16, BF16}:
            return F32
        return first if first.bits > second.bits else second
    if first.kind == second.kind:
        return first if first.bits > second.bits else second
    signed, unsigned = (first, second) if first.kind == "int" else (second, first)
    if unsigned is not U8:
        why = f"promotion of {signed} and {unsigned} is not defined"
        raise UsageError(UNSUPPORTED, None, why, hint="Convert one of them with to(dtype)")
    return I16 if signed.bits == 8 else signed


def result_type(dtypes: Sequence[DType], zero_dim: Sequence[DType] = (), scalars: Sequence[type] = ()) -> DType:
    """The dtype of an operation.

    Args:
        dtypes: of tensors with dims.
        zero_dim: of tensors without.
        scalars: types of Python numbers.
    """
    found: DType | None = None
    for group in (dtypes, zero_dim, [dtype_of_scalar(kind) for kind in scalars]):
        if group:
            of_group = functools.reduce(promote_types, group)
            if found is None or category(of_group) > category(found):
                found = as_complex(found) if found is not None and found.kind == "float" else of_group
    assert found is not None
    return found


def named(dtype: Any) -> DType:
    """The dtype of a name or object; int, float, bool and complex are Python's."""
    if dtype in (float, int, bool, complex):
        return dtype_of_scalar(dtype)
    found = dtype_named(dtype)
    if found.kind not in CATEGORIES or found.numpy is None:
        raise UsageError(UNSUPPORTED, None, f"tensors do not compute in {found}", hint="Dequantize it first")
    return found


def as_float(dtype: DType) -> DType:
    """The dtype in which floating-point functions of a tensor compute."""
    return dtype if category(dtype) >= 2 else DEFAULT.dtype


NAMES: dict[str, DType] = {
    **{name: dtype for name, dtype in DTYPES.items() if dtype.kind in CATEGORIES and dtype.numpy and dtype.bits >= 8},
    **{
        word: DTYPES[name]
        for word, name in {
            "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
            "int16": "i16", "int8": "i8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
            "complex64": "c64", "complex128": "c128", "cfloat": "c64", "cdouble": "c128",
            "float": "f32", "double": "f64", "half": "f16", "long": "i64", "int": "i32", "short": "i16",
        }.items()
    },
}  # fmt: skip
"""Dtypes by our names and PyTorch's, as attributes of the package."""
