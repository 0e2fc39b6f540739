"""Slice: ranges along axes, with steps."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.ir.symbolic_dim import subtract_dims
from ..rules.axes import axes_in, axes_of, constants, elements, input_error

TO_THE_END = 2**31 - 1
"""Ends from here on stand for "all that is left" in exported models."""


def bounds(start: int, end: int, step: int, length: int) -> range:
    """Positions along an axis: negative ends count from the back, and all are cut to the axis."""
    low, high = (0, length) if step > 0 else (-1, length - 1)
    first = min(max(start + length if start < 0 else start, max(low, 0)), high)
    last = min(max(end + length if end < 0 else end, low), high)
    return range(first, last, step)


def infer_slice(node: Inference) -> None:
    """Lengths where start, end and step are known; elements of 1-D integers stay known."""
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    starts, ends = elements(node, 1), elements(node, 2)
    count = len(starts) if starts is not None else len(ends) if ends is not None else None
    axes = constants(elements(node, 3)) if node.value(3) is not None else None if count is None else tuple(range(count))
    steps = elements(node, 4) if node.value(4) is not None else None if count is None else (1,) * count
    if axes is None:
        node.set(0, node.dtype(0), [None] * len(shape))
        return
    missing = (None,) * len(axes)
    triples = list(zip(starts or missing, ends or missing, steps or missing, strict=False))
    if len(triples) != len(axes):
        node.fail(f"{counted(len(axes), 'axis', 'axes')} and {counted(len(triples), 'window')}")
    result = list(shape)
    for axis, (start, end, step) in zip(axes_of(node, axes, len(shape)), triples, strict=True):
        if step == 0:
            node.fail("a step is zero")
        result[axis] = _length(shape[axis], start, end, step)
    data = node.data(0) if len(shape) == 1 and axes else None
    numbers = constants(triples[0]) if data is not None else None
    if data is not None and numbers is not None:
        node.set(
            0,
            node.dtype(0),
            result,
            data=[data[index] for index in bounds(numbers[0], numbers[1], numbers[2], len(data))],
        )
    else:
        node.set(0, node.dtype(0), result, data=node.data(0) if not axes else None)


def _length(length: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        if isinstance(length, int):
            return len(bounds(start, end, step, length))
        whole = (start == 0 and end >= TO_THE_END and step == 1) or (
            start >= TO_THE_END and end <= -TO_THE_END and step == -1
        )
        if whole:
            return length
        if step > 0 and start >= 0 and end <= start and (end >= 0) == (start >= 0):
            return 0
    behind = isinstance(end, int) and end >= TO_THE_END
    inside = (
        step == 1 and not _negative(start) and not _negative(end) and (behind or subtract_dims(length, end) is not None)
    )
    return subtract_dims(length if behind else end, start) if inside else None


def _negative(position: Dim) -> bool:
    return isinstance(position, int) and position < 0


@op(
    "Slice",
    since=13,
    types="tensor T=index T T T",
    traits=(Trait.MOVES,),
    infer=infer_slice,
    examples=[
        case("f32[4,5]", np.array([1, 0]), np.array([3, -1]), np.array([0, 1]), np.array([1, 2])),
        case("f32[4,5]", np.array([1]), np.array([2**63 - 1])),
        case("f32[4,5]", np.array([-1]), np.array([-(2**63)]), np.array([-1]), np.array([-2])),
        case("f32[4,5]", np.array([3]), np.array([1]), np.array([0])),
        case("i64[5]", np.array([-9], np.int32), np.array([9], np.int32)),
        case("string[4]", np.array([1]), np.array([3])),
        case("f32[0,5]", np.array([0]), np.array([3])),
        case("f32[5]", np.array([9]), np.array([-9]), np.array([0]), np.array([-1])),
    ],
)
def slice_(
    x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> np.ndarray:
    """Elements from `starts` to before `ends` in `steps` along `axes` (the first ones where they are not given); a
    view."""
    count = starts.size
    along = range(count) if axes is None else axes.reshape(-1).tolist()
    strides = [1] * count if steps is None else steps.reshape(-1).tolist()
    if not (ends.size == len(along) == len(strides) == count) or 0 in strides:
        raise input_error("Slice", "starts, ends, axes and steps do not belong together, or a step is zero")
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(
        axes_in("Slice", along, x.ndim), starts.reshape(-1).tolist(), ends.reshape(-1).tolist(), strides, strict=True
    ):
        positions = bounds(start, end, step, x.shape[axis])
        index[axis] = (
            slice(positions.start, None if positions.stop < 0 else positions.stop, step) if positions else slice(0)
        )
    return x[tuple(index)]


@upgrade(slice_, below=10)
def windows_were_attributes(node: Node, build: Builder) -> None:
    """Before opset 10 starts, ends and axes were attributes."""
    starts, ends, axes = (node.attributes.pop(name, None) for name in ("starts", "ends", "axes"))
    if starts is not None and ends is not None:
        node.inputs += [build.constant(starts), build.constant(ends)]
        node.inputs += [] if axes is None else [build.constant(axes)]
