"""Scale grids: one scale per block of rows and columns of a matrix, per row, or per matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ....runtime.contract.quantization_scheme import Checkpoint
from ....runtime.tensor.dtype import F32
from ....runtime.tensor.stored_tensor import StoredTensor
from .fields import Values

SCALES = ("f32", "f16", "bf16", "f64", "f8_e8m0", "u8")
"""Dtypes of scales; u8 scales are exponents, as in f8_e8m0."""


def powers(exponents: npt.NDArray[np.uint8]) -> Values:
    """Two to the power ``exponent - 127``."""
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 127).astype(np.float32)


class Grid:
    """The scales of a weight ``[..., rows, columns]``.

    Args:
        scales: name of their tensor: one number, or ``[..., blocks of rows, blocks of columns]``, where a last
            dimension of 1 may be left out.
        shape: of the weight.
        block: rows and columns of a block, None if they follow from the shape of the scales.
    """

    def __init__(
        self, checkpoint: Checkpoint, scales: str, shape: tuple[int, ...], block: tuple[int, int] | None, of: str
    ) -> None:
        tensor = checkpoint.part(scales, (*SCALES, "f8_e4m3", "i8"), of=of)
        rows, self.columns = shape[-2:]
        grid = _grid(tensor.shape, shape)
        one = math.prod(tensor.shape) == 1
        expected = (1, 1) if one or block is None else (math.ceil(rows / block[0]), math.ceil(self.columns / block[1]))
        fits = grid is not None and (one or block is None or grid == expected)
        if grid is None or not fits or (block is None and (grid[0] not in (1, rows) or self.columns % grid[1])):
            want = [*shape[:-2], *expected] if block is not None else f"1, or {[*shape[:-1], 1]}"
            raise checkpoint.error(
                "E-PACKED-SHAPE", f"tensor {scales!r} has another shape", expected=want, found=list(tensor.shape)
            )
        self.one = one
        self.height, self.grid = rows, grid
        self.block = (math.ceil(rows / grid[0]), math.ceil(self.columns / grid[1])) if block is None or one else block
        self.tensor = StoredTensor(tensor.dtype, (max(1, math.prod(tensor.shape) // grid[1]), grid[1]), tensor.storage)

    def rows(self, first: int, last: int) -> npt.NDArray[Any]:
        """The numbers of rows ``[first, last)`` as they are stored, [rows, blocks of columns]; rows of all matrices are
        counted through."""
        if self.one:
            return self.tensor.numpy()
        matrix, row = np.divmod(np.arange(first, last), self.height)
        wanted = matrix * self.grid[0] + row // self.block[0]
        low, high = int(wanted[0]), int(wanted[-1]) + 1
        return self.tensor[low:high].numpy()[wanted - low]

    def scales(self, first: int, last: int) -> Values:
        """The factors of rows ``[first, last)``, [rows, blocks of columns]."""
        stored = self.rows(first, last)
        return powers(stored) if self.tensor.dtype.name == "u8" else stored.astype(F32.as_numpy())

    def spread(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Numbers [rows, blocks of columns] to all columns, or to one where a row has one."""
        return numbers if numbers.shape[1] == 1 else np.repeat(numbers, self.block[1], axis=1)[:, : self.columns]


def _grid(scales: tuple[int, ...], weight: tuple[int, ...]) -> tuple[int, int] | None:
    """Blocks of rows and of columns that scales of a shape count; None where they do not go with the weight."""
    leading = weight[:-2]
    if math.prod(scales) == 1:
        return 1, 1
    if len(scales) == len(weight) and scales[:-2] == leading and all(scales[-2:]):
        return scales[-2], scales[-1]
    if len(scales) == len(weight) - 1 and scales == weight[:-1]:
        return scales[-1], 1
    return (1, 1) if leading and scales == leading else None
