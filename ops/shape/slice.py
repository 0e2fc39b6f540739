"""Slice: a range of each axis, with steps."""

from __future__ import annotations

import numpy as np

from ...runtime.build import Builder
from ...runtime.errors import UsageError
from ...runtime.graph import Dim, Node
from ...runtime.infer import Inference
from ...runtime.op import case, op, upgrade


def _slice(node: Inference) -> None:
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    starts, ends = node.data(1), node.data(2)
    axes = node.data(3) if node.value(3) is not None else _leading(node)
    steps = node.data(4) if node.value(4) is not None else (1,) * len(axes or ())
    if axes is None or any(not isinstance(axis, int) for axis in axes):
        node.set(0, node.dtype(0), (None,) * len(shape))
        return
    dims: list[Dim] = list(shape)
    known: list[slice] = []
    for index, axis in enumerate(axes):
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            node.refuse(f"axis {axis} is outside a tensor of rank {len(shape)}")
        part = [None if items is None or index >= len(items) else items[index] for items in (starts, ends, steps)]
        dims[axis], found = _length(shape[axis], *part)
        known += [found] if found is not None else []
    data = node.data(0)
    exact = data is not None and len(known) == len(axes) and len(shape) == 1
    for part_of in known if exact else ():
        data = data[part_of] if data is not None else None
    node.set(0, node.dtype(0), dims, data=data if exact else None)


def _leading(node: Inference) -> tuple[int, ...] | None:
    """The axes where none are named: as many as there are starts."""
    count = (node.shape(1) or (None,))[0]
    return tuple(range(count)) if isinstance(count, int) else None


def _length(dim: Dim, start: Dim, end: Dim, step: Dim) -> tuple[Dim, slice | None]:
    """The length that is left of a dimension, and the slice where all is known."""
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step):
        return None, None
    if isinstance(dim, int):
        found = _clamped(start, end, step, dim)
        return len(range(dim)[found]), found
    whole = start == 0 and step == 1 and end >= 2**31 - 1
    return (dim if whole else None), None


def _clamped(start: int, end: int, step: int, length: int) -> slice:
    """The slice with numbers as the standard clamps them, where a backward one may end before the first element."""
    first = start + length if start < 0 else start
    last = end + length if end < 0 else end
    if step > 0:
        return slice(min(max(first, 0), length), min(max(last, 0), length), step)
    first, last = min(max(first, 0), length - 1), min(max(last, -1), length - 1)
    return slice(first, None if last < 0 else last, step) if length else slice(0, 0, 1)


@op(
    "Slice", since=13, infer=_slice,
    examples=[
        case("f32[20,10,5]", [0, 0], [3, 10], [0, 1], [1, 2]), case("f32[5,4]", [4], [-100], [0], [-1]), case("f32[5,4]", [1], [1000]),
        case("f32[5,4]", [7], [9], [0]), case("i64[6]", [-3], [2**62]),
    ],
)
def slice_(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> np.ndarray:
    """``data[start:end:step]`` for each of the axes, the numbers clamped to the lengths."""
    count = len(starts)
    places = range(count) if axes is None else [int(axis) for axis in axes]
    strides = [1] * count if steps is None else [int(step) for step in steps]
    region = [slice(None)] * data.ndim
    for place, start, end, step in zip(places, starts.tolist(), ends.tolist(), strides, strict=True):
        if not step or not -data.ndim <= place < data.ndim:
            raise UsageError("E-OP-SLICE", None, f"Slice of {list(data.shape)} along axis {place} with step {step}", hint="The model is malformed")
        region[place] = _clamped(start, end, step, data.shape[place])
    return data[tuple(region)]


@upgrade(slice_, below=10)
def ranges_were_attributes(node: Node, build: Builder) -> None:
    """Before opset 10 starts, ends and axes were attributes."""
    starts, ends = node.attributes.pop("starts"), node.attributes.pop("ends")
    axes = node.attributes.pop("axes", list(range(len(starts))))
    node.inputs += [build.constant(starts), build.constant(ends), build.constant(axes)]
