"""Exponentials and activations for kernels emitted as LLVM IR: the counterpart of those in `simd.memory`."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from ...runtime.simd.llvm_vector import F32, I32, Code, Vector, vector_type
from ...runtime.simd.memory import NORMAL_CDF, NORMAL_CDF_END

ROUNDING = 1.5 * 2.0**23
"""Added and taken away again, it rounds small f32 to integers."""


def _less(code: Code, x: Vector, bound: float) -> Vector:
    constant = ir.Constant(vector_type(F32), [bound] * vector_type(F32).count)
    return Vector(code, code.builder.fcmp_ordered("<", x.value, constant))


def _known(code: Code, number: float) -> Vector:
    return code.floats_of([number] * vector_type(F32).count)


def _quotient(code: Code, one: Vector, other: Vector) -> Vector:
    return Vector(code, code.builder.fdiv(one.value, other.value))


def exp(code: Code, x: Vector) -> Vector:
    """e to the power of each lane; zero below -87.3, the largest power at 88."""
    low, high = -87.3, 88.0
    bounded = code.select(_less(code, x, high), x, _known(code, high))
    bounded = code.select(_less(code, bounded, low), _known(code, low), bounded)
    n = bounded * 1.44269504088896341 + ROUNDING - ROUNDING
    r = code.fma(n, _known(code, -0.693359375), bounded)
    r = code.fma(n, _known(code, 2.12194440e-4), r)
    p = _known(code, 1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = code.fma(p, r, _known(code, factor))
    y = code.fma(p, r * r, r) + 1.0
    exponent = Vector(code, code.builder.fptosi(n.value, vector_type(I32))) + 127
    y = code.select(_less(code, x, low), _known(code, 0.0), y * (exponent << 23).bits_as_float())
    same = Vector(code, code.builder.fcmp_ordered("==", x.value, x.value))
    return code.select(same, y, x)


def sigmoid(code: Code, x: Vector) -> Vector:
    """1 / (1 + e to the power -x)."""
    return _quotient(code, _known(code, 1.0), exp(code, x * -1.0) + 1.0)


def gelu(code: Code, x: Vector) -> Vector:
    """x times the standard normal distribution function of x, to 3e-7 of x."""
    low, high = _known(code, -NORMAL_CDF_END), _known(code, NORMAL_CDF_END)
    bounded = code.select(_less(code, x, NORMAL_CDF_END), x, high)
    bounded = code.select(_less(code, bounded, -NORMAL_CDF_END), low, bounded)
    z = bounded * bounded
    p, q = (_polynomial(code, z, coefficients) for coefficients in NORMAL_CDF)
    share = _quotient(code, bounded * p, q) + 0.5
    return x * code.select(_less(code, x, -NORMAL_CDF_END), _known(code, 0.0), share)


def _polynomial(code: Code, z: Vector, coefficients: Sequence[float]) -> Vector:
    """A polynomial whose coefficients ascend."""
    total = _known(code, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = code.fma(total, z, _known(code, coefficient))
    return total


def gelu_tanh(code: Code, x: Vector) -> Vector:
    """The approximation of `gelu` by tanh."""
    return x * sigmoid(code, x * code.fma(x * x, _known(code, 0.0713548162726), _known(code, 1.59576912161)))


def silu(code: Code, x: Vector) -> Vector:
    """x times its sigmoid."""
    return x * sigmoid(code, x)


def relu(code: Code, x: Vector) -> Vector:
    """x, 0 below 0."""
    return code.select(_less(code, x, 0.0), _known(code, 0.0), x)
