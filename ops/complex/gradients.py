"""Gradients of operators of complex numbers that are not holomorphic, or whose rule has a case of its own.

As in PyTorch, the gradient of a real loss by z = x + iy is dL/dx + i dL/dy.
"""

from __future__ import annotations

import numpy as np

from ...runtime.ir.domain import COMPLEX
from ..rules.expression import Term
from ..training.gradient_rule import Step, differentiated, without_gradient
from . import arithmetic, fourier, functions, parts

without_gradient(arithmetic.complex_equal, arithmetic.complex_is_nan, arithmetic.complex_is_inf)


def _of(operator: str, x: Term, *others: Term, **attributes: object) -> Term:
    return x.calls(operator, *others, domain=COMPLEX, **attributes)[0]  # type: ignore[arg-type]


def conjugate(x: Term) -> Term:
    """The conjugate of a complex term."""
    return _of("Conj", x)


@differentiated(parts.complex_)
def _complex(step: Step) -> list[Term | None]:
    g = step.grad
    return [_of("Real", g).summed_to(step.input(0)), _of("Imag", g).summed_to(step.input(1))]


@differentiated(parts.real_part)
def _real(step: Step) -> list[Term | None]:
    return [_of("Complex", step.grad, step.grad.number(0))]


@differentiated(parts.imaginary_part)
def _imag(step: Step) -> list[Term | None]:
    return [_of("Complex", step.grad.number(0), step.grad)]


@differentiated(parts.conj)
def _conj(step: Step) -> list[Term | None]:
    return [conjugate(step.grad)]


@differentiated(parts.complex_cast, parts.complex_cast_like)
def _cast(step: Step) -> list[Term | None]:
    g = step.grad
    moves = g.value.dtype is None or g.value.dtype.has_gradient
    return [g.call("CastLike", step.input(0)) if moves else None]


@differentiated(arithmetic.complex_abs)
def _abs(step: Step) -> list[Term | None]:
    """Along the number itself; 0 at 0."""
    x = step.input(0)
    return [x.call("Sign") * step.grad.call("CastLike", x)]


@differentiated(parts.angle)
def _angle(step: Step) -> list[Term | None]:
    """(-y + ix) / |z|^2; 0 at 0."""
    x, g = step.input(0), step.grad
    real, imag = _of("Real", x), _of("Imag", x)
    squares = real * real + imag * imag
    share = g / squares.call("Equal", squares.number(0)).where(1, squares)
    return [_of("Complex", -imag * share, real * share)]


@differentiated(arithmetic.complex_sign)
def _sign(step: Step) -> list[Term | None]:
    """The part of the gradient across the direction of the number, over its size; 0 at 0."""
    x, y, g = step.input(0), step.output(0), step.grad
    size = x.call("Abs")
    along = _of("Real", g * conjugate(y)).call("CastLike", g) * y
    is_zero = size.call("Equal", size.number(0))
    divisor = is_zero.where(1, size).call("CastLike", g)
    return [is_zero.where(0, (g - along) / divisor)]


@differentiated(functions.complex_softsign)
def _softsign(step: Step) -> list[Term | None]:
    """g / u - sgn(x) Re(g conj(x)) / u^2 with u = 1 + |x|."""
    x, g = step.input(0), step.grad
    whole = 1 + x.call("Abs")
    along = _of("Real", g * conjugate(x)) / (whole * whole)
    return [g / whole.call("CastLike", g) - x.call("Sign") * along.call("CastLike", g)]


@differentiated(arithmetic.complex_pow)
def _pow(step: Step) -> list[Term | None]:
    """g conj(y x^(y - 1)), 0 where y is 0; g conj(x^y log x), 0 where x is 0 and the real part of y is not negative."""
    x, y, g = step.input(0), step.input(1), step.grad
    by_base = g * conjugate(y * x.call("Pow", y - 1))
    is_zero = x.call("Equal", x.number(0))
    real = _of("Real", y)
    stays = is_zero.call("And", real >= real.number(0))
    by_power = g * conjugate(x.call("Pow", y) * x.call("Log"))
    return [y.call("Equal", y.number(0)).where(0, by_base).summed_to(x), stays.where(0, by_power).summed_to(y)]


@differentiated(functions.complex_acosh)
def _acosh(step: Step) -> list[Term | None]:
    """1 / (sqrt(z - 1) sqrt(z + 1)), whose branch is that of acosh."""
    x = step.input(0)
    return [step.grad / conjugate((x - 1).call("Sqrt") * (x + 1).call("Sqrt"))]


@differentiated(fourier.fft)
def _fft(step: Step) -> list[Term | None]:
    """The transform of the opposite sign, times the same scale."""
    kept = {name: step.attributes[name] for name in ("axes", "scale")}
    return [_of("FFT", step.grad, **kept, inverse=int(not step.attributes["inverse"]))]


@differentiated(fourier.rfft)
def _rfft(step: Step) -> list[Term | None]:
    """The real part of the inverse transform of the gradient and of zeros in place of the other half."""
    g, x, axis = step.grad, step.input(0), step.attributes["axis"]
    missing = x.lengths[axis] - g.lengths[axis]
    if missing:
        widths = [0] * (2 * g.axes)
        widths[g.axes + axis] = missing
        g = g.call("Pad", step.integers(widths))
    return [_of("Real", _of("FFT", g, axes=[axis], inverse=1, scale=step.attributes["scale"]))]


@differentiated(fourier.irfft)
def _irfft(step: Step) -> list[Term | None]:
    """The transform of the gradient; elements that stand for two of the whole transform count twice."""
    x, g, axis, length = step.input(0), step.grad, step.attributes["axis"], step.attributes["length"]
    found = _of("RFFT", g, axis=axis, scale=step.attributes["scale"])
    bins = found.lengths[axis]
    weights = np.full(bins, 2.0)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    shaped = weights.reshape([-1, *[1] * (found.axes - axis - 1)])
    found = found * Term(step.build.constant(shaped.astype(found.dtype.as_numpy())), step.build)
    given = x.lengths[axis]
    if given > bins:
        widths = [0] * (2 * found.axes)
        widths[found.axes + axis] = given - bins
        return [found.call("Pad", step.integers(widths))]
    return [found.part(axis, 0, given) if given < bins else found]
