"""Shifts of bits, by multiplication and division."""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.tensor.dtype import BOOL
from ...core.tensor import Tensor
from ..arithmetic import defined
from ..indexing import where
from ..operands import promoted


def _counts(input: Any, other: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Elements, powers of two, and whether the count of bits is one that the dtype has."""
    x, bits = map(Tensor, promoted([input, other]))
    if x.dtype.kind not in ("int", "uint") or x.dtype is BOOL:
        raise UsageError("E-TENSOR-DTYPE", None, f"shift of the bits of {x.dtype}", expected="integers")
    inside = bits.ge(0) & bits.lt(x.dtype.bits)
    return x, 2 ** where(inside, bits, 0), inside


def _left(input: Any, other: Any) -> Tensor:
    x, power, inside = _counts(input, other)
    return where(inside, x * power, 0)


def _right(input: Any, other: Any) -> Tensor:
    """Towards minus infinity; the greatest power of a signed dtype is negative, and leaves the sign alone."""
    x, power, inside = _counts(input, other)
    sign = where(x.lt(0), -1, 0).to(x.dtype) if x.dtype.kind == "int" else x * 0
    positive = inside & power.gt(0)
    return where(positive, x // where(positive, power, 1), sign)


defined(
    "bitwise_left_shift", "Bits moved to higher places; 0 beyond those of the dtype.", _left, "__lshift__",
    reflected="__rlshift__", inplace="__ilshift__",
)  # fmt: skip
defined(
    "bitwise_right_shift", "Bits moved to lower places, with the sign kept.", _right, "__rshift__",
    reflected="__rrshift__", inplace="__irshift__",
)  # fmt: skip
