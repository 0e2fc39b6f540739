"""Analytic functions of complex numbers."""

from __future__ import annotations

import numpy as np

from ..elementwise import exponential_activation, piecewise_activation, trigonometry, unary
from .declare import holomorphic, on_complex


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    found: np.ndarray = 1 / (1 + np.exp(-x))
    return found


def _swish(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """x * sigmoid(alpha * x)."""
    found: np.ndarray = x * _sigmoid(alpha * x)
    return found.astype(x.dtype, copy=False)


complex_exp = holomorphic("ComplexExp", unary.exp)
complex_log = holomorphic("ComplexLog", unary.log)
complex_sqrt = holomorphic("ComplexSqrt", unary.sqrt)
complex_sin = holomorphic("ComplexSin", trigonometry.sin)
complex_cos = holomorphic("ComplexCos", trigonometry.cos)
complex_tan = holomorphic("ComplexTan", trigonometry.tan)
complex_asin = holomorphic("ComplexAsin", trigonometry.asin)
complex_acos = holomorphic("ComplexAcos", trigonometry.acos)
complex_atan = holomorphic("ComplexAtan", trigonometry.atan)
complex_sinh = holomorphic("ComplexSinh", trigonometry.sinh)
complex_cosh = holomorphic("ComplexCosh", trigonometry.cosh)
complex_tanh = holomorphic("ComplexTanh", trigonometry.tanh)
complex_asinh = holomorphic("ComplexAsinh", trigonometry.asinh)
complex_acosh = on_complex("ComplexAcosh", trigonometry.acosh)
complex_atanh = holomorphic("ComplexAtanh", trigonometry.atanh)
complex_sigmoid = holomorphic("ComplexSigmoid", exponential_activation.sigmoid, compute=_sigmoid)
complex_swish = holomorphic("ComplexSwish", exponential_activation.swish, compute=_swish)
complex_softsign = on_complex("ComplexSoftsign", piecewise_activation.softsign)
