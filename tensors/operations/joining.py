"""Joining tensors, and splitting them along a dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..core.expression import apply, apply_all, op_named, shape_error
from ..core.registry import function, operation
from ..core.tensor import Tensor
from .operands import broadcast, dim_of, integers, promoted


def _joined(name: str, tensors: Sequence[Tensor], dim: int) -> Tensor:
    items = list(tensors)
    if not items:
        raise UsageError("E-TENSOR-VALUE", None, f"{name} of no tensors", hint="Pass at least one")
    kept = [item for item in items if item.shape != (0,)] or items[:1]
    expressions = promoted(items)
    expressions = [each for each, item in zip(expressions, items, strict=True) if any(item is one for one in kept)]
    first = expressions[0].type.shape
    if not first:
        raise shape_error(f"{name}: a tensor without dims cannot be joined; use stack()")
    axis = dim_of(dim, len(first))
    for each in expressions[1:]:
        shape = each.type.shape
        if len(shape) != len(first) or any(
            one != other for index, (one, other) in enumerate(zip(first, shape, strict=True)) if index != axis
        ):
            raise shape_error(f"{name}: shapes {list(first)} and {list(shape)} differ in more than dim {axis}")
    if len(expressions) == 1:
        return Tensor(expressions[0])
    return Tensor(apply(op_named("Concat"), expressions, {"axis": axis}))


@function("cat", "concat", "concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along a dim; empty ones of one dim are left out."""
    return _joined("cat", tensors, dim)


@function()
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dim."""
    items = list(tensors)
    shapes = {item.shape for item in items}
    if len(shapes) > 1:
        raise shape_error(f"stack: shapes {' and '.join(str(list(shape)) for shape in sorted(shapes))} differ")
    return _joined("stack", [item.unsqueeze(dim) for item in items], dim)


@function()
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors side by side, those of one dim as columns."""
    return _joined("column_stack", [item.reshape(-1, 1) if item.ndim < 2 else item for item in tensors], 1)


@function()
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors side by side: along the second dim, or the only one."""
    items = [item.reshape(1) if not item.ndim else item for item in tensors]
    return _joined("hstack", items, 0 if items and items[0].ndim == 1 else 1)


@function("vstack", "row_stack")
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors on top of each other, those of one dim as rows."""
    return _joined("vstack", [item.reshape(1, -1) if item.ndim < 2 else item for item in tensors], 0)


@operation()
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one length, the last one shorter if it has to be, or of given lengths."""
    axis = dim_of(dim, tensor.ndim)
    length = tensor.shape[axis]
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size <= 0 and length:
            raise UsageError("E-TENSOR-VALUE", None, f"parts of length {size}", expected="at least 1")
        lengths = [min(size, length - start) for start in range(0, length, size)] if length else [0]
    else:
        lengths = list(split_size_or_sections)
    if sum(lengths) != length:
        raise shape_error(f"split: parts of lengths {lengths} do not make up dim {axis} of length {length}")
    if len(lengths) == 1:
        return (Tensor(tensor.expression),)
    parts = apply_all(op_named("Split"), [tensor.expression, integers(lengths)], {"axis": axis}, len(lengths))
    return tuple(map(Tensor, parts))


@operation()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split into at most `chunks` parts of one length, the last one shorter if it has to be."""
    if chunks < 1:
        raise UsageError("E-TENSOR-VALUE", None, f"{chunks} parts of a tensor", expected="at least 1")
    length = input.shape[dim_of(dim, input.ndim)]
    return split(input, -(-length // chunks) if length else [0] * chunks, dim)


@operation()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All entries of a dim."""
    axis = dim_of(dim, input.ndim)
    if not input.shape[axis]:
        return ()
    return tuple(part.squeeze(axis) for part in split(input, 1, axis))


@function()
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid from those of its axes."""
    items = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else list(tensors)
    if indexing == "xy" and len(items) > 1:
        found = meshgrid(items[1], items[0], *items[2:])
        return (found[1], found[0], *found[2:])
    shape = [item.numel() for item in items]
    return tuple(
        item.reshape([-1 if index == axis else 1 for index in range(len(items))]).broadcast_to(shape)
        for axis, item in enumerate(items)
    )


@function()
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the shape that an operation on them has."""
    shape = broadcast([item.shape for item in tensors], "broadcast_tensors")
    return tuple(item.broadcast_to(shape) for item in tensors)


def tensor_of_indices(count: int) -> Tensor:
    """The numbers below a count."""
    return Tensor(integers(list(range(count))))


@operation()
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each entry of a dim several times; without a dim each element, in a row.

    Args:
        repeats: how often, or a tensor of how often each one; its values are computed at once. Alone, a tensor of
            how often each index is repeated.
        output_size: the sum of `repeats`, which PyTorch does not have to compute then.
    """
    if repeats is None:
        input, repeats = tensor_of_indices(input.numel()), input
    x = input.reshape(-1) if dim is None else input
    axis = dim_of(dim or 0, x.ndim)
    counts = repeats.array() if isinstance(repeats, Tensor) else np.asarray(repeats)
    if counts.size not in (1, x.shape[axis]) or counts.ndim > 1:
        raise shape_error(f"repeat_interleave: {counted(counts.size, 'number')} for a dim of length {x.shape[axis]}")
    if counts.size and counts.min() < 0:
        raise UsageError(
            "E-TENSOR-VALUE", None, f"an entry is repeated {counted(counts.min(), 'time')}", expected="at least 0"
        )
    positions = integers(np.repeat(np.arange(x.shape[axis]), counts).tolist())
    return Tensor(apply(op_named("Gather"), [x.expression, positions], {"axis": axis}))
