"""Shapes of tensors by Keras' names: other shapes of the same elements, joined and split tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ....nn import functional
from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ..core.symbolic import KerasTensor, word_of
from .operation import dims_of, operation, ours, tensor_of

__all__ = [
    "append", "broadcast_to", "concatenate", "dtype", "expand_dims", "flip", "hstack", "meshgrid", "moveaxis", "ndim",
    "pad", "ravel", "repeat", "reshape", "roll", "rot90", "shape", "size", "split", "squeeze", "stack", "swapaxes",
    "tile", "transpose", "unstack", "vstack",
]  # fmt: skip


def shape(x: Any) -> tuple[int | None, ...]:
    """The lengths of the dims; None for those of a symbolic tensor that are not known."""
    return tuple(x.shape if isinstance(x, KerasTensor) else tensor_of(x).shape)


def ndim(x: Any) -> int:
    """Number of dims."""
    return len(shape(x))


def size(x: Any) -> int:
    """Number of elements."""
    return tensor_of(x).numel()


def dtype(x: Any) -> str:
    """Keras' word for the dtype, such as "float32"."""
    return x.dtype if isinstance(x, KerasTensor) else word_of(tensor_of(x).dtype)


@operation
def reshape(x: Any, newshape: Any) -> Tensor:
    """The elements in another shape, in which -1 stands for what is left."""
    return tensor_of(x).reshape(newshape)


@operation
def transpose(x: Any, axes: Any = None) -> Tensor:
    """The axes in another order, reversed by default."""
    tensor = tensor_of(x)
    return tensor.permute(*(reversed(range(tensor.ndim)) if axes is None else axes))


@operation
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    return tensor_of(x).transpose(axis1, axis2)


@operation
def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """Axes at other positions."""
    return tensor_of(x).movedim(source, destination)


@operation
def expand_dims(x: Any, axis: Any) -> Tensor:
    """New axes of length 1."""
    found = tensor_of(x)
    axes = [axis] if isinstance(axis, int) else list(axis)
    rank = found.ndim + len(axes)
    for each in sorted(one % rank for one in axes):
        found = found.unsqueeze(each)
    return found


@operation
def squeeze(x: Any, axis: Any = None) -> Tensor:
    """Without axes of length 1."""
    tensor = tensor_of(x)
    return tensor.squeeze() if axis is None else tensor.squeeze(axis)


@operation
def concatenate(xs: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors one after another along an axis."""
    return ours("cat")([tensor_of(each) for each in xs], axis)


@operation
def append(x1: Any, x2: Any, axis: int | None = None) -> Tensor:
    """Two tensors one after another, flat without an axis."""
    items = [tensor_of(each) if axis is not None else tensor_of(each).reshape(-1) for each in (x1, x2)]
    return ours("cat")(items, axis or 0)


@operation
def stack(x: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors along a new axis."""
    return ours("stack")([tensor_of(each) for each in x], axis)


@operation
def hstack(xs: Sequence[Any]) -> Tensor:
    """Tensors next to each other."""
    return ours("hstack")([tensor_of(each) for each in xs])


@operation
def vstack(xs: Sequence[Any]) -> Tensor:
    """Tensors one below another."""
    return ours("vstack")([tensor_of(each) for each in xs])


@operation
def unstack(x: Any, num: int | None = None, axis: int = 0) -> list[Tensor]:
    """The parts along an axis, without it."""
    return list(tensor_of(x).unbind(axis))


@operation
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """A number of equal parts along an axis, or those between indices.

    Raises UsageError for a length that is not a multiple of the number.
    """
    tensor = tensor_of(x)
    length = tensor.shape[axis]
    if isinstance(indices_or_sections, int):
        if length % indices_or_sections:
            why = f"{length} elements do not split into {indices_or_sections} equal parts"
            raise UsageError("E-TENSOR-SHAPE", None, why)
        return list(tensor.split(length // indices_or_sections, axis))
    ends = [0, *(min(int(each), length) for each in indices_or_sections), length]
    return [tensor.narrow(axis, first, max(last - first, 0)) for first, last in itertools.pairwise(ends)]


@operation
def tile(x: Any, repeats: Any) -> Tensor:
    """The tensor several times along each axis."""
    return ours("tile")(tensor_of(x), (repeats,) if isinstance(repeats, int) else tuple(repeats))


@operation
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element several times."""
    given = repeats if isinstance(repeats, int) else tensor_of(repeats)
    return ours("repeat_interleave")(tensor_of(x), given, axis)


@operation
def flip(x: Any, axis: Any = None) -> Tensor:
    """The elements in reverse order."""
    tensor = tensor_of(x)
    return tensor.flip(list(range(tensor.ndim)) if axis is None else dims_of(axis))


@operation
def roll(x: Any, shift: Any, axis: Any = None) -> Tensor:
    """The elements moved along an axis, those that fall off at the other end."""
    return ours("roll")(tensor_of(x), shift, axis)


@operation
def rot90(array: Any, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    """Rotated by k times 90 degrees in the plane of two axes."""
    return ours("rot90")(tensor_of(array), k, list(axes))


@operation
def broadcast_to(x: Any, shape: Any) -> Tensor:
    """The tensor repeated to a shape."""
    return tensor_of(x).expand(*shape)


@operation
def ravel(x: Any) -> Tensor:
    """All elements along one axis."""
    return tensor_of(x).reshape(-1)


@operation
def meshgrid(*x: Any, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid."""
    return list(ours("meshgrid")(*[tensor_of(each) for each in x], indexing=indexing))


@operation
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Tensor:
    """Elements around those of the tensor: a number for all ends, a pair for all axes, or a pair for each axis."""
    tensor = tensor_of(x)
    given: Any = [pad_width] * 2 if isinstance(pad_width, int) else list(pad_width)
    pairs = [given] * tensor.ndim if isinstance(given[0], int) else given * (tensor.ndim if len(given) == 1 else 1)
    ends = [int(end) for pair in reversed(pairs) for end in pair]
    if mode == "constant":
        return functional.pad(tensor, ends, value=constant_values or 0)
    for axis, (before, after) in enumerate(pairs):
        index = _mirrored(tensor.shape[axis], before, after, mode)
        tensor = tensor.index_select(axis, tensor_of(index))
    return tensor


def _mirrored(length: int, before: int, after: int, mode: str) -> list[int]:
    """The index of the element that stands at each position along a padded axis."""
    positions = range(-before, length + after)
    if mode not in ("reflect", "symmetric"):
        raise UsageError("E-OPTION", None, f"mode is {mode!r}", expected="constant, reflect or symmetric")
    period = max(2 * length - 2, 1) if mode == "reflect" else 2 * length
    found = [each % period for each in positions]
    return [each if each < length else period - each - (mode == "symmetric") for each in found]
