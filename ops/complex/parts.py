"""Real and imaginary parts of complex numbers, and conversions."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.domain import COMPLEX
from ...runtime.ir.op import op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import C64, C128, F64
from ..cast.cast import as_asked, element_type, infer_cast_like
from ..rules.shape_rules import broadcast, same_as_input
from .declare import real_result


def _infer_complex(node: Inference) -> None:
    node.set(0, C128 if node.dtype(0) is F64 else C64, broadcast(node.shape(0), node.shape(1)))


@op("Complex", COMPLEX, infer=_infer_complex)
def complex_(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """real + i imag, of f32 or f64 parts."""
    found = np.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64))
    found.real, found.imag = real, imag
    return found


@op("Real", COMPLEX, infer=real_result)
def real_part(x: np.ndarray) -> np.ndarray:
    """The real part."""
    return x.real.copy()


@op("Imag", COMPLEX, infer=real_result)
def imaginary_part(x: np.ndarray) -> np.ndarray:
    """The imaginary part."""
    return x.imag.copy()


@op("Conj", COMPLEX, infer=same_as_input)
def conj(x: np.ndarray) -> np.ndarray:
    """real - i imag."""
    return np.conj(x)


@op("Angle", COMPLEX, infer=real_result)
def angle(x: np.ndarray) -> np.ndarray:
    """The argument, from -pi to pi."""
    return np.arctan2(x.imag, x.real)


@op("ComplexCast", COMPLEX, infer=as_asked)
def complex_cast(x: np.ndarray, *, to: int) -> np.ndarray:
    """The elements in the dtype with this number in ONNX; a real one keeps the real part, bool whether one part is
    not 0."""
    return _converted(x, element_type(to).as_numpy())


@op("ComplexCastLike", COMPLEX, infer=infer_cast_like)
def complex_cast_like(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The elements in the dtype of `like`; a real one keeps the real part."""
    return _converted(x, like.dtype)


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    keeps_both = x.dtype.kind != "c" or dtype.kind in "cb"
    return (x if keeps_both else x.real).astype(dtype)
