"""Min-max quantization of groups of weights: scales, zero points and codes.

Source: the compressed-tensors library (min-max observer, `calculate_qparams`, `quantize`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....runtime.base.errors import FormatError
from ....runtime.tensor.dtype import F16, F32, DType
from ....runtime.tensor.stored_tensor import StoredTensor
from .fields import Values

EPSILONS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23}
"""The scale of a group of zeros."""


def floats(weight: StoredTensor, first: int, last: int) -> Values:
    """Rows ``[first, last)`` as float32 [n, columns]."""
    values: Values = weight[first:last].numpy().astype(np.float32)
    return values


def scale_dtype(weight: StoredTensor) -> DType:
    """The dtype of a weight's scales: that of the weight if it has 16 bits, else f32."""
    return weight.dtype if weight.dtype.name in ("f16", "bf16") else F32


def _rounded(scales: Values, dtype: DType) -> Values:
    """Scales rounded to a dtype; those that it rounds to zero become its smallest number. FormatError for scales that
    it cannot hold."""
    kind: Any = dtype.as_numpy()
    smallest = np.float32(2.0**-24 if dtype == F16 else 2.0**-126)
    usable = np.where(scales > 0, np.maximum(scales, smallest), np.float32(EPSILONS[dtype.name]))
    with np.errstate(over="ignore"):
        found: Values = usable.astype(kind).astype(np.float32)
    if not np.isfinite(found).all():
        why = f"a group of weights needs a scale of {float(usable.max()):g}, which {dtype.name} cannot hold"
        raise FormatError("E-NAN", None, why, hint="Choose a type of compressed-tensors for weights in f32, or GGUF")
    return found


def symmetric(groups: Values, half_range: float, dtype: DType, axis: int = -1) -> Values:
    """The scale of each group along `axis`, of the largest magnitude over half the range of codes."""
    return _rounded(np.abs(groups).max(axis) / np.float32(half_range), dtype)


def asymmetric(groups: Values, most: int, dtype: DType, axis: int = -1) -> tuple[Values, Values]:
    """The scale and the zero point, 0 to `most`, of each group along `axis`, which covers 0; of zeros the middle
    code."""
    least, largest = np.minimum(groups.min(axis), 0), np.maximum(groups.max(axis), 0)
    scales = _rounded((largest - least) / np.float32(most), dtype)
    zeros = np.rint(np.clip(-least / scales, 0, most))
    return scales, np.where(largest > least, zeros, np.float32((most + 1) // 2))


def quantized(
    groups: Values, scales: Values, zeros: Values | float, most: int, axis: int = -1
) -> npt.NDArray[np.uint8]:
    """``value / scale + zero`` of groups along `axis`, rounded to 0 to `most`; a zero point of all is added at the
    end."""
    steps = groups / np.expand_dims(scales, axis)
    if isinstance(zeros, float):
        np.rint(np.clip(steps, -zeros, most - zeros, out=steps), out=steps)
        return (steps + np.float32(zeros)).astype(np.uint8)
    steps += np.expand_dims(zeros, axis)
    return np.rint(np.clip(steps, 0, most, out=steps), out=steps).astype(np.uint8)
