"""Branch-free f32 math functions (exp, log, tanh, erf ...) that LLVM can vectorize.

Polynomials are those of Cephes (Moshier); errors are below 2 units in the last place of the result, 4 for `pow`, 5 for
`tanh`. Names that are not defined here are Python's own `math`.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from math import (  # noqa: F401 (they are part of this `math`)
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cos,
    cosh,
    e,
    fabs,
    fmod,
    gamma,
    inf,
    isinf,
    isnan,
    lgamma,
    nan,
    pi,
    sin,
    sinh,
    sqrt,
    tan,
    tau,
)
from typing import Any

import numpy as np
from llvmlite import ir

from ..jit.numba_lazy import cgutils, emitted, intrinsic, types
from ..jit.range_kernel import inlined
from .vector import bits, from_bits, select

f32 = np.float32
i32 = np.int32


def _unary(name: str) -> Any:
    @intrinsic
    def rounded(typing: Any, x: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(args[0].type, [args[0].type])
            width = "f64" if sig.args[0] == types.float64 else "f32"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.{width}"), args)

        kind = types.float64 if x == types.float64 else types.float32
        return kind(kind), lower

    return rounded


floor, ceil, trunc = _unary("floor"), _unary("ceil"), _unary("trunc")
rint = _unary("rint")


@inlined
def copysign(size: Any, sign: Any) -> Any:
    """`size` with the sign of `sign`."""
    return from_bits((bits(f32(size)) & i32(0x7FFFFFFF)) | (bits(f32(sign)) & i32(-0x80000000)))


@inlined
def _power_of_two(n: Any) -> Any:
    return from_bits((i32(n) + i32(127)) << i32(23))


@inlined
def exp(x: Any) -> Any:
    """e to the power x."""
    bounded = x if x > f32(-104.0) else f32(-104.0)
    bounded = bounded if bounded < f32(88.8) else f32(88.8)
    n = rint(bounded * f32(1.44269504088896341))
    r = fma(n, f32(-0.693359375), bounded)
    r = fma(n, f32(2.12194440e-4), r)
    p = f32(1.9875691500e-4)
    p = fma(p, r, f32(1.3981999507e-3))
    p = fma(p, r, f32(8.3334519073e-3))
    p = fma(p, r, f32(4.1665795894e-2))
    p = fma(p, r, f32(1.6666665459e-1))
    p = fma(p, r, f32(5.0000001201e-1))
    y = fma(p, r * r, r) + f32(1)
    half = rint(n * f32(0.5))
    y = y * _power_of_two(half) * _power_of_two(n - half)
    y = y if x <= f32(88.72284) else f32(np.inf)
    return y if x == x else x


@inlined
def expm1(x: Any) -> Any:
    """e to the power x, less one, exact for small x."""
    small = x
    z = small * small
    p = f32(1.9875691500e-4)
    p = p * x + f32(1.3981999507e-3)
    p = p * x + f32(8.3334519073e-3)
    p = p * x + f32(4.1665795894e-2)
    p = p * x + f32(1.6666665459e-1)
    p = p * x + f32(5.0000001201e-1)
    near = p * z + x
    return near if abs(x) < f32(0.34) else exp(x) - f32(1)


@inlined
def log(x: Any) -> Any:
    """Natural logarithm."""
    tiny = x < f32(1.17549435e-38)
    scaled = x * f32(8388608.0) if tiny else x
    word = bits(scaled)
    exponent = ((word >> i32(23)) & i32(255)) - i32(126)
    m = from_bits((word & i32(0x007FFFFF)) | i32(0x3F000000))
    low = m < f32(0.707106781186547524)
    k = f32(exponent) - (f32(1) if low else f32(0)) - (f32(23) if tiny else f32(0))
    m = (m + m if low else m) - f32(1)
    z = m * m
    p = f32(7.0376836292e-2)
    p = p * m + f32(-1.1514610310e-1)
    p = p * m + f32(1.1676998740e-1)
    p = p * m + f32(-1.2420140846e-1)
    p = p * m + f32(1.4249322787e-1)
    p = p * m + f32(-1.6668057665e-1)
    p = p * m + f32(2.0000714765e-1)
    p = p * m + f32(-2.4999993993e-1)
    p = p * m + f32(3.3333331174e-1)
    y = p * m * z + k * f32(-2.12194440e-4) - f32(0.5) * z
    y = m + y + k * f32(0.693359375)
    y = y if x < f32(np.inf) else x
    y = y if x > f32(0) else f32(-np.inf)
    return y if x >= f32(0) else f32(np.nan)


@inlined
def log1p(x: Any) -> Any:
    """Natural logarithm of 1 + x, exact for small x (Kahan)."""
    u = f32(1) + x
    d = u - f32(1)
    y = log(u) * (x / (d if d != f32(0) else f32(1)))
    return x if d == f32(0) else (y if u < f32(np.inf) else u)


@emitted(lambda: types.float32(types.float32, types.float32, types.float32))
def fma(build: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32, rounded once."""
    single = ir.FloatType()
    function = cgutils.get_or_insert_function(build.module, ir.FunctionType(single, [single] * 3), "llvm.fma.f32")
    return build.call(function, [a, b, c])


@inlined
def tanh(x: Any) -> Any:
    """Hyperbolic tangent: Eigen's quotient of polynomials on [-9, 9], every step rounded as onnxruntime rounds it."""
    x = select(x < f32(-9), f32(-9), x)
    x = select(x > f32(9), f32(9), x)
    z = x * x
    p = f32(-2.76076847742355e-16)
    p = fma(p, z, f32(2.00018790482477e-13))
    p = fma(p, z, f32(-8.60467152213735e-11))
    p = fma(p, z, f32(5.12229709037114e-8))
    p = fma(p, z, f32(1.48572235717979e-5))
    p = fma(p, z, f32(6.37261928875436e-4))
    p = fma(p, z, f32(4.89352455891786e-3))
    q = f32(1.19825839466702e-6)
    q = fma(q, z, f32(1.18534705686654e-4))
    q = fma(q, z, f32(2.26843463243900e-3))
    q = fma(q, z, f32(4.89352518554385e-3))
    return x * p / q


@inlined
def erf(x: Any) -> Any:
    """The error function: a polynomial near zero, 1 - exp(polynomial) elsewhere, which is 1 from 4 on."""
    size = abs(x)
    z = x * x
    p = f32(7.853861353153693e-5)
    p = fma(p, z, f32(-8.010193625184903e-4))
    p = fma(p, z, f32(5.188327685732524e-3))
    p = fma(p, z, f32(-2.685381193529856e-2))
    p = fma(p, z, f32(1.128358514861418e-1))
    p = fma(p, z, f32(-3.761262582423300e-1))
    p = fma(p, z, f32(1.28379165726710e-1))
    near = fma(size, p, size)
    bounded = size if size < f32(4) else f32(4)
    q = f32(1.8557400935970597e-4)
    q = fma(q, bounded, f32(-2.9396072977890264e-3))
    q = fma(q, bounded, f32(2.1805318301648894e-2))
    q = fma(q, bounded, f32(-1.03037368688535e-1))
    q = fma(q, bounded, f32(-6.382256773319063e-1))
    q = fma(q, bounded, f32(-1.1270400359746116))
    q = fma(q, bounded, f32(-3.5371949877007695e-4))
    n = rint(q * f32(1.44269504088896341))
    r = fma(n, f32(-0.69314718056), q)
    y = f32(1.3981999507e-3)
    y = fma(y, r, f32(8.3334519073e-3))
    y = fma(y, r, f32(4.1665795894e-2))
    y = fma(y, r, f32(1.6666665459e-1))
    y = fma(y, r, f32(5.0000001201e-1))
    tail = (fma(y, r * r, r) + f32(1)) * _power_of_two(n)
    far = select(size == size, f32(1) - tail, size)
    return copysign(select(size < f32(1), near, far), x)


@inlined
def pow(x: Any, y: Any) -> Any:
    """x to the power y, through doubles."""
    return f32(np.float64(x) ** np.float64(y))
