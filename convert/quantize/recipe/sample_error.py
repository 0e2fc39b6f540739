"""Quantization error of a type, measured on a sample of a tensor's rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....runtime.base.dataclass import dataclass
from ....runtime.passes.quantize.block_weights import ErrorStatistics
from ....runtime.tensor.block_codec import codec_of, decoded, encoded
from ....runtime.tensor.cast import convert
from ....runtime.tensor.dtype import F32, BlockType, DType
from ....runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

SAMPLE = 1 << 15
"""Elements of a tensor that are looked at."""
SLOW_SAMPLE = 1 << 13
SLOW = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"})
"""Types whose encoders search long; fewer elements have to do for them."""


@dataclass(frozen=True)
class Sample:
    """Rows of a tensor, spread evenly over it.

    Attributes:
        rows: float32 ``[n, columns]``; values that are not finite are zero.
        matrices: of each row the number of the matrix that it belongs to.
    """

    rows: np.ndarray
    matrices: list[int]


def sample(tensor: StoredTensor) -> Sample:
    """Some rows of a tensor, the same ones every time."""
    import numpy

    columns = tensor.shape[-1]
    count = math.prod(tensor.shape[:-1])
    wanted = max(1, min(count, SAMPLE // max(1, columns)))
    source = tensor.dequantize(F32) if tensor.qtype is not None else tensor.cast(F32)
    height = tensor.shape[-2] if len(tensor.shape) > 1 else 1
    numbers = sorted({(2 * index + 1) * count // (2 * wanted) for index in range(wanted)}) if count and columns else []
    rows = numpy.zeros((len(numbers), columns), numpy.float32)
    for position, number in enumerate(numbers):
        rows[position] = _row(source, number, columns)
    rows[~numpy.isfinite(rows)] = 0
    return Sample(rows, [number // height for number in numbers])


def _row(source: StoredTensor, number: int, columns: int) -> np.ndarray:
    import numpy

    start, stop, step = number * columns * 4, (number + 1) * columns * 4, source.storage.step
    low, high = start // step * step, min(source.nbytes, -(-stop // step) * step)
    return numpy.frombuffer(source.storage.read(low, high), "<f4")[(start - low) // 4 : (stop - low) // 4]


def errors(rows: Sample, dtype: DType, importance: np.ndarray | None, *, weighted: bool = False) -> ErrorStatistics:
    """The errors of the sampled rows in `dtype`; squares are weighed by the importance where `weighted`.

    Args:
        importance: float32 ``[matrices, columns]`` or None.
    """
    total = ErrorStatistics()
    limit = SLOW_SAMPLE if dtype.name in SLOW else SAMPLE
    keep = max(1, limit // max(1, rows.rows.shape[1]))
    step = max(1, len(rows.matrices) // keep)
    groups: dict[int, list[int]] = {}
    for index in range(0, len(rows.matrices), step):
        groups.setdefault(0 if importance is None else rows.matrices[index], []).append(index)
    for matrix, chosen in groups.items():
        before = rows.rows[chosen]
        weights = None if importance is None else importance[matrix]
        total.add(before, _there_and_back(before, dtype, weights), weights if weighted else None)
    return total


def _there_and_back(rows: np.ndarray, dtype: DType, importance: np.ndarray | None) -> np.ndarray:
    import numpy

    if isinstance(dtype, BlockType):
        codec = codec_of(dtype)
        return decoded(codec, encoded(codec, rows, importance).reshape(-1).data).reshape(rows.shape)
    with numpy.errstate(all="ignore"):
        return convert(rows, dtype).astype(numpy.float32)
