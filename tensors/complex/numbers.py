"""Complex tensors: creation from parts, parts, conjugates and angles."""

from __future__ import annotations

import math
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.ir.domain import COMPLEX
from ..core.expression import Expression, apply, op_named
from ..core.registry import attribute, function, method, operation
from ..core.tensor import Tensor
from ..operations.creation import zeros_like
from ..operations.indexing import where
from ..operations.joining import stack
from ..operations.operands import broadcast, default_float, expression_of


def is_complex(x: Tensor) -> bool:
    """Whether elements are complex numbers."""
    return x.dtype.kind == "complex"


def applied(op: str, *inputs: Expression, **attributes: Any) -> Tensor:
    """An operator of complex numbers."""
    return Tensor(apply(op_named(op, COMPLEX), inputs, attributes or None))


@function("complex")
def complex_of(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag of two tensors of f32 or f64, which broadcast: c64 or c128."""
    for part in (real, imag):
        if part.dtype.kind != "float" or part.dtype.bits < 32 or part.dtype is not real.dtype:
            why = f"complex of {real.dtype} and {imag.dtype}"
            raise UsageError("E-TENSOR-DTYPE", None, why, expected="two tensors of f32 or of f64")
    broadcast((real.shape, imag.shape), "complex")
    return applied("Complex", real.expression, imag.expression)


@function()
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * exp(i angle) of two tensors of f32 or f64: c64 or c128."""
    return complex_of(abs * angle.cos(), abs * angle.sin())


@function()
def view_as_complex(input: Tensor) -> Tensor:
    """The complex numbers whose parts the last dim, of length 2, holds."""
    if not input.ndim or input.shape[-1] != 2:
        why = f"view_as_complex of a tensor of shape {list(input.shape)}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected="a last dim of length 2")
    return complex_of(input[..., 0], input[..., 1])


@function()
def view_as_real(input: Tensor) -> Tensor:
    """The parts of complex numbers in a new last dim of length 2."""
    if not is_complex(input):
        raise _real_only("view_as_real", input)
    return stack([part(input, "Real"), part(input, "Imag")], -1)


def _real_only(what: str, x: Tensor) -> UsageError:
    why = f"{what} of a tensor of {x.dtype}"
    return UsageError("E-TENSOR-DTYPE", None, why, expected="complex elements", hint="Convert it with to(cc.complex64)")


def part(x: Tensor, name: str) -> Tensor:
    """The real or imaginary part of complex numbers."""
    return applied(name, x.expression)


@function()
def real(input: Tensor) -> Tensor:
    """The real part; a real tensor is its own."""
    return part(input, "Real") if is_complex(input) else input


@function()
def imag(input: Tensor) -> Tensor:
    """The imaginary part of complex numbers."""
    if not is_complex(input):
        raise _real_only("imag", input)
    return part(input, "Imag")


attribute("real", real)
attribute("imag", imag)


@operation("conj_physical")
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor is its own."""
    return applied("Conj", input.expression) if is_complex(input) else input


@operation()
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product of two vectors, of the conjugate of the first one."""
    return conj(input).dot(other)


@operation("resolve_neg")
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates and signs are computed, not marked."""
    return input


@operation("arg")
def angle(input: Any) -> Tensor:
    """The angle of complex numbers in radians, from -pi to pi; 0 or pi of real ones, NaN of NaN."""
    x = Tensor(default_float(expression_of(input)))
    if is_complex(x):
        return applied("Angle", x.expression)
    return where(x < 0, math.pi, where(x.isnan(), x, zeros_like(x)))


@operation()
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0, as it is of all real tensors."""
    return part(input, "Imag").eq(0) if is_complex(input) else zeros_like(input).eq(0)


def _conversion(name: str, dtype: str) -> None:
    def made(self: Tensor, memory_format: Any = None) -> Tensor:
        return self.to(dtype)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"Convert to {dtype}."
    method(name)(made)


_conversion("cfloat", "c64")
_conversion("cdouble", "c128")
