"""Discrete Fourier transforms along axes, by NumPy's mixed-radix and Bluestein algorithms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.ir.domain import COMPLEX
from ...runtime.ir.op import op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import C64, C128, F64
from ..rules.shape_rules import same_as_input


@op("FFT", COMPLEX, infer=same_as_input)
def fft(x: np.ndarray, *, axes: Sequence[int], inverse: int = 0, scale: float = 1.0) -> np.ndarray:
    """The transform of complex numbers along axes, times a scale; the exponent of the inverse has the opposite sign,
    and it is not divided by a length."""
    found = np.fft.ifftn(x, axes=axes, norm="forward") if inverse else np.fft.fftn(x, axes=axes)
    return _scaled(found, scale, x.dtype)


def _infer_rfft(node: Inference) -> None:
    shape, axis = node.shape(0), node.attributes["axis"]
    dtype = C128 if node.dtype(0) is F64 else C64
    if shape is None:
        node.set(0, dtype, None)
        return
    length = shape[axis]
    bins = length // 2 + 1 if isinstance(length, int) else None
    node.set(0, dtype, (*shape[:axis], bins, *shape[axis + 1 :]))


@op("RFFT", COMPLEX, infer=_infer_rfft)
def rfft(x: np.ndarray, *, axis: int, scale: float = 1.0) -> np.ndarray:
    """The first half of the transform of real numbers along an axis, times a scale."""
    return _scaled(np.fft.rfft(x, axis=axis), scale, np.result_type(x.dtype, np.complex64))


def _infer_irfft(node: Inference) -> None:
    shape, axis, dtype = node.shape(0), node.attributes["axis"], node.dtype(0)
    found = None if shape is None else (*shape[:axis], node.attributes["length"], *shape[axis + 1 :])
    node.set(0, None if dtype is None else dtype.to_real(), found)


@op("IRFFT", COMPLEX, infer=_infer_irfft)
def irfft(x: np.ndarray, *, axis: int, length: int, scale: float = 1.0) -> np.ndarray:
    """The real numbers whose transform along an axis begins with `length // 2 + 1` elements, times a scale; it is not
    divided by the length."""
    return _scaled(np.fft.irfft(x, n=length, axis=axis, norm="forward"), scale, x.real.dtype)


def _scaled(found: np.ndarray, scale: float, dtype: np.dtype) -> np.ndarray:
    found = found.astype(dtype, copy=False)
    return found if scale == 1 else found * dtype.type(scale)
