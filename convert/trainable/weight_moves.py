"""Weights of a graph as functions of the tensors that a file stores, which gradients flow through.

A layout (`Layout.join`) moves elements lazily in bytes. Here it is found out once what it moves where, by moving the
numbers of the elements; the same is then done with tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import Config, Layout, Same
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.core.tensor import Tensor
from ...tensors.namespace import PUBLIC

PROBES = (0.0, 1.0, 0.375, -2.5)
"""Numbers whose images tell whether a layout that computes is linear."""


@dataclass(frozen=True)
class Move:
    """How a weight is made of tensors.

    Attributes:
        names: of the tensors.
        shape: of the weight.
        transposed: whether the matrices of the tensors are transposed first.
        width: elements of a row, which stay together.
        rows: which rows of the tensors, one below the other, are those of the weight; None for all in order.
        factor, offset: the weight is the moved elements times `factor`, plus `offset`.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    transposed: bool = False
    width: int = 1
    rows: np.ndarray | None = None
    factor: float = 1.0
    offset: float = 0.0

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """The weight, from the tensors."""
        moved = [tensor.transpose(-1, -2) for tensor in tensors] if self.transposed else list(tensors)
        if self.rows is None and len(moved) == 1:
            found = moved[0]
        else:
            stacked = [each.reshape(-1, self.width) for each in moved]
            found = stacked[0] if len(stacked) == 1 else PUBLIC["cat"](stacked, 0)
            found = found if self.rows is None else taken(found, self.rows)
        found = found if found.shape == self.shape else found.reshape(*self.shape)
        found = found if self.factor == 1 else found * self.factor
        return found if self.offset == 0 else found + self.offset


def taken(tensor: Tensor, places: np.ndarray, axis: int = 0) -> Tensor:
    """Entries of an axis."""
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places) and (np.diff(places) == 1).all():
        return tensor.narrow(axis, first, len(places))
    return tensor.index_select(axis, PUBLIC["tensor"](places))


def move_of(layout: Layout, names: Sequence[str], parts: Sequence[StoredTensor], config: Config) -> Move | None:
    """The affine change that a layout makes to tensors; None if it computes anything but a multiple and a constant.

    Args:
        names, parts: the tensors of the file.
    """
    if isinstance(layout, Same):
        return Move(tuple(names), parts[0].shape)
    if layout.computed:
        return _linear(layout, names, parts, config)
    numbers, start = [], 0
    for part in parts:
        numbers.append(StoredTensor.of(np.arange(start, start + part.count, dtype=np.int32).reshape(part.shape)))
        start += part.count
    index = layout.join(numbers, config).numpy()
    flat = index.reshape(-1)
    if np.array_equal(flat, np.arange(start)):
        return Move(tuple(names), index.shape, width=parts[0].shape[-1])
    width = 1 if len(parts[0].shape) == 1 else parts[0].shape[-1]
    rows = _rows(flat, width)
    if rows is not None:
        return Move(tuple(names), index.shape, width=width, rows=rows)
    if all(len(part.shape) > 1 for part in parts):
        order = np.concatenate([_transposed(number.numpy()) for number in numbers])
        place = np.empty(start, np.int64)
        place[order] = np.arange(start)
        width = parts[0].shape[-2]
        rows = _rows(place[flat], width)
        if rows is not None:
            whole = None if np.array_equal(rows, np.arange(start // width)) else rows
            return Move(tuple(names), index.shape, transposed=True, width=width, rows=whole)
    return Move(tuple(names), index.shape, width=1, rows=flat.astype(np.int64))


def _transposed(numbers: np.ndarray) -> np.ndarray:
    return numbers.swapaxes(-1, -2).reshape(-1)


def _rows(flat: np.ndarray, width: int) -> np.ndarray | None:
    """The number of each row, where rows of elements stayed whole."""
    if flat.size % width:
        return None
    runs = flat.reshape(-1, width)
    whole = (runs[:, 0] % width == 0).all() and (runs == runs[:, :1] + np.arange(width)).all()
    return (runs[:, 0] // width).astype(np.int64) if whole else None


def _linear(layout: Layout, names: Sequence[str], parts: Sequence[StoredTensor], config: Config) -> Move | None:
    """A layout of one tensor that multiplies every element by one number and adds another."""
    if len(parts) != 1:
        return None
    shape = parts[0].shape
    images = [layout.join([StoredTensor.of(np.full(shape, probe, np.float32))], config) for probe in PROBES]
    if images[0].shape != shape:
        return None
    arrays = [image.cast("f32").numpy() for image in images]
    offset = float(arrays[0].flat[0])
    factor = float(arrays[1].flat[0]) - offset
    straight = all(np.allclose(each, probe * factor + offset) for each, probe in zip(arrays, PROBES, strict=True))
    return Move(tuple(names), shape, factor=factor, offset=offset) if straight else None
