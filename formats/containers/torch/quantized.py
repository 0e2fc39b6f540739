"""PyTorch quantized tensors, dequantized to the f32 values of torch's `dequantize`, rounding for rounding.

Source: torch's quantized tensor documentation; the roundings were found by comparing with torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.tensor.dtype import DTYPES, F32, DType
from ....runtime.tensor.storage import Derived, Storage
from ....runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class QuantizedType:
    """A torch dtype of quantized values: the dtype of the codes, and how many of them a byte holds (the first in its
    lowest bits)."""

    codes: DType
    packed: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of one element as torch counts them."""
        return max(1, self.codes.bits // 8)


QUANTIZED = {
    "qint8": QuantizedType(DTYPES["i8"]),
    "quint8": QuantizedType(DTYPES["u8"]),
    "qint32": QuantizedType(DTYPES["i32"]),
    "quint4x2": QuantizedType(DTYPES["u4"], 2),
    "quint2x4": QuantizedType(DTYPES["u2"], 4),
}
AXIS_LIMIT = 1 << 22


def dequantized(
    storage: Storage,
    kind: QuantizedType,
    shape: tuple[int, ...],
    parameters: Sequence[Any],
    malformed: Callable[[str], Exception],
) -> tuple[StoredTensor, str]:
    """The f32 tensor, and the scheme in words.

    Args:
        storage: the codes in row order.
        parameters: scale and zero point; or scales, zero points (tensors or lists, one for each index of an axis) and
            that axis.
        malformed: makes the error for parameters that do not fit.
    """
    if len(parameters) == 2 and all(isinstance(number, int | float) for number in parameters):
        scale, zero = parameters
        if type(zero) is not int or not -(1 << 31) <= zero < 1 << 31:
            raise malformed("a quantized tensor has a zero point that is not a 32-bit integer")
        return _tensor(
            storage, kind, shape, _per_tensor(float(scale), zero), (scale, zero)
        ), f"per tensor, scale {scale:g}, zero point {zero}"
    if len(parameters) != 3:
        raise malformed("a quantized tensor has neither a scale nor scales of an axis")
    scales, zeros, axis = parameters
    if (
        type(axis) is not int
        or not 0 <= axis < len(shape)
        or not _length(scales) == _length(zeros) == shape[axis] <= AXIS_LIMIT
    ):
        raise malformed(
            f"a quantized tensor of shape {list(shape)} lacks a scale and a zero point for each index of axis {axis}"
        )
    formula = _per_channel(scales, zeros, shape[axis], math.prod(shape[axis + 1 :]))
    return _tensor(
        storage, kind, shape, formula, (_key(scales), _key(zeros), axis)
    ), f"per channel, {shape[axis]} scales along axis {axis}"


Formula = Callable[["np.ndarray", int], "np.ndarray"]


def _length(values: Any) -> int | None:
    """Number of scales or zero points, or None if they are not numeric."""
    if isinstance(values, StoredTensor):
        return (
            values.count
            if len(values.shape) == 1 and values.dtype.kind in ("float", "int") and values.dtype.numpy is not None
            else None
        )
    return (
        len(values) if isinstance(values, list) and all(isinstance(number, int | float) for number in values) else None
    )


def _key(values: StoredTensor | list[float]) -> Hashable:
    return (
        (values.storage.key or id(values.storage), values.dtype) if isinstance(values, StoredTensor) else tuple(values)
    )


def _array(values: StoredTensor | list[float]) -> np.ndarray:
    import numpy

    return values.numpy() if isinstance(values, StoredTensor) else numpy.array(values)


def _per_tensor(scale: float, zero: int) -> Formula:
    def formula(codes: np.ndarray, first: int) -> np.ndarray:
        import numpy

        values: np.ndarray = (codes.astype(numpy.int32) - numpy.int32(zero)).astype(numpy.float32) * numpy.float32(
            scale
        )
        return values

    return formula


def _per_channel(
    scales: StoredTensor | list[float], zeros: StoredTensor | list[float], length: int, inner: int
) -> Formula:
    @functools.cache
    def read() -> tuple[np.ndarray, np.ndarray]:
        import numpy

        scale, zero = _array(scales), _array(zeros)
        return scale.astype(numpy.float64 if zero.dtype.kind == "i" else numpy.float32), zero.astype(numpy.float32)

    def formula(codes: np.ndarray, first: int) -> np.ndarray:
        import numpy

        scale, zero = read()
        channel = numpy.arange(first, first + codes.size) // inner % length
        values: np.ndarray = ((codes.astype(numpy.float32) - zero[channel]) * scale[channel]).astype(numpy.float32)
        return values

    return formula


def _tensor(
    storage: Storage, kind: QuantizedType, shape: tuple[int, ...], formula: Formula, parameters: Hashable
) -> StoredTensor:
    count = math.prod(shape)
    group = math.lcm(storage.step, kind.itemsize)
    elements = group // kind.itemsize * kind.packed

    def read(start: int, stop: int) -> memoryview:
        import numpy

        first, last = start // 4, stop // 4
        data = numpy.frombuffer(
            storage.read(first // kind.packed * kind.itemsize, -(-last // kind.packed) * kind.itemsize), numpy.uint8
        )
        if kind.packed > 1:
            bits = kind.codes.bits
            shifts = numpy.arange(0, 8, bits, dtype=numpy.uint8)
            codes = ((data[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[: last - first]
        else:
            codes = data.view(kind.codes.as_numpy().newbyteorder("<"))
        with numpy.errstate(all="ignore"):
            return formula(codes, first).astype("<f4", copy=False).view(numpy.uint8).data

    key = None if storage.key is None else (storage.key, "dequantized", parameters)
    return StoredTensor(F32, shape, Derived(4 * count, 4 * elements, read, key, sequential=storage.sequential))
