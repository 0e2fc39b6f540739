"""Functions of each element."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.tensor.dtype import DType
from ...core.expression import Size, leaf, op_named
from ...core.promotion import category, dtype_of_scalar
from ...core.promotion import result_type as promoted_type
from ...core.registry import function, in_place, method, operation
from ...core.tensor import Tensor
from ..creation import creator, ones_like, zeros_like
from ..indexing import where
from ..operands import NUMBERS, apply_in, expression_of


def _tensor(item: Any) -> Tensor:
    return item if isinstance(item, Tensor) else Tensor(expression_of(item))


def _of_integers(name: str, made: Any, document: str) -> None:
    def computed(input: Tensor, other: Any) -> Tensor:
        second = _tensor(other)
        if category(input.dtype) != 1 or category(second.dtype) != 1:
            raise UsageError("E-TENSOR-DTYPE", None, f"{name} of {input.dtype} and {second.dtype}", expected="integers")
        return Tensor(leaf(made(input.array(), second.array().astype(input.dtype.as_numpy()))))

    computed.__name__ = computed.__qualname__ = name
    computed.__doc__ = document
    operation()(computed)


for _name, _made, _document in (
    ("gcd", np.gcd, "The greatest common divisors of integers."),
    ("lcm", np.lcm, "The least common multiples of integers."),
):
    _of_integers(_name, _made, _document)


@operation()
def round(input: Any, *, decimals: int = 0) -> Tensor:
    """The nearest number with so many decimals, the even one of two; of tens, hundreds ... for negative decimals."""
    x = _tensor(input)
    if category(x.dtype) < 2:
        return Tensor(x.expression)
    scale = float(f"1e{abs(decimals)}")
    scaled = x if not decimals else x * scale if decimals > 0 else x / scale
    tensor = Tensor(apply_in(op_named("Round"), [scaled.expression]))
    return tensor if not decimals else tensor / scale if decimals > 0 else tensor * scale


in_place(round, "round_")


@operation()
def isposinf(input: Tensor) -> Tensor:
    """Whether elements are infinity."""
    return input.eq(math.inf) if input.dtype.kind == "float" else ones_like(input).bool().logical_not()


@operation()
def isneginf(input: Tensor) -> Tensor:
    """Whether elements are minus infinity."""
    return input.eq(-math.inf) if input.dtype.kind == "float" else ones_like(input).bool().logical_not()


class Parts(NamedTuple):
    """Numbers of a size from 1/2 to 1, and the powers of 2 they are multiplied with."""

    mantissa: Tensor
    exponent: Tensor


@operation()
def frexp(input: Tensor) -> Parts:
    """Mantissas of a size from 1/2 to 1 and exponents of 2, whose product is the input; exponents are computed at
    once."""
    exponents = np.frexp(input.detach().array())[1]
    scale = (
        np.ldexp(np.ones((), input.dtype.as_numpy()), -(exponents // 2)),
        np.ldexp(np.ones((), input.dtype.as_numpy()), -(exponents - exponents // 2)),
    )
    return Parts(input * Tensor(leaf(scale[0])) * Tensor(leaf(scale[1])), Tensor(leaf(exponents.astype(np.int32))))


@operation()
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Elements of a size of `lambd` at most become 0."""
    return where(input.abs() <= lambd, zeros_like(input), input)


@function()
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Negative elements times a weight, one for all or one for each channel."""
    shape = [1, -1, *[1] * (input.ndim - 2)] if weight.numel() > 1 else [1] * input.ndim
    return where(input > 0, input, input * weight.reshape(shape))


method("prelu")(prelu)


@function()
def result_type(tensor1: Tensor | float, tensor2: Tensor | float) -> Any:
    """The dtype of an operation on two tensors or numbers."""
    dims: list[DType] = []
    zero: list[DType] = []
    scalars: list[type] = []
    for each in (tensor1, tensor2):
        if isinstance(each, NUMBERS):
            scalars.append(type(each))
        else:
            (dims if each.ndim else zero).append(each.dtype)
    return promoted_type(dims, zero, scalars)


@creator()
def scalar_tensor(s: Any, dtype: Any = None) -> Tensor:
    """A number as a tensor without dims, of the default float dtype."""
    tensor = Tensor(expression_of(s))
    return tensor.to(dtype_of_scalar(float) if dtype is None else dtype)


@function()
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The positions in a shape of numbers of elements in their order."""
    found = np.unravel_index(indices.array(), tuple(shape))
    return tuple([Tensor(leaf(np.asarray(each, np.int64))) for each in found])


@function()
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape of an operation on tensors of these shapes."""
    return Size(np.broadcast_shapes(*[(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]))
