"""Native data movement: views where possible, otherwise one strided copy."""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ...runtime.jit.address import share, u8, u16, u32, u64
from ...runtime.jit.kernel_arguments import Address, Words
from ...runtime.jit.numba_lazy import intrinsic, types
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, View, native
from .concat import concat
from .depth_to_space import depth_to_space, space_to_depth
from .expand import expand, tile
from .reshape import flatten, reshape
from .slice import slice_
from .split import equal_parts, split
from .squeeze import squeeze, unsqueeze
from .transpose import transpose


def _copying(pointer: Any) -> RangeKernel:
    @range_kernel
    def strided_copy(
        source: Address,
        target: Address,
        rows: int,
        count: int,
        step_from: int,
        step_to: int,
        outer: int,
        lengths: Words,
        strides_from: Words,
        strides_to: Words,
        part: int,
        parts: int,
    ) -> None:
        """Rows of `count` elements with a step on both sides; outer dims, the last one first, have lengths and
        strides."""
        source, target = pointer(source), pointer(target)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            rest, begin, end = row, 0, 0
            for axis in range(outer):
                length = lengths[axis]
                index = rest % length
                rest = rest // length
                begin += index * strides_from[axis]
                end += index * strides_to[axis]
            if step_from == 1 and step_to == 1:
                for j in range(count):
                    target[end + j] = source[begin + j]
            else:
                for j in range(count):
                    target[end + j * step_to] = source[begin + j * step_from]

    return strided_copy


COPIES = {1: _copying(u8), 2: _copying(u16), 4: _copying(u32), 8: _copying(u64)}


WORDS = ir.VectorType(ir.IntType(32), 16)


@intrinsic
def _turn_words(typing: Any, source: Any, step_from: Any, target: Any, step_to: Any) -> Any:
    """Sixteen lines of sixteen words become the columns of sixteen other lines; addresses and steps in bytes."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, step_from, target, step_to = args
        place = lambda start, step, line: builder.inttoptr(  # noqa: E731
            builder.add(start, builder.mul(step, ir.Constant(ir.IntType(64), line))), WORDS.as_pointer()
        )
        lines = []
        for line in range(16):
            lines.append(builder.load(place(source, step_from, line)))
            lines[-1].align = 4
        for far in (1, 2, 4, 8):
            upper = ir.Constant(
                ir.VectorType(ir.IntType(32), 16), [lane if not lane & far else 16 + lane - far for lane in range(16)]
            )
            lower_half = ir.Constant(
                ir.VectorType(ir.IntType(32), 16), [lane + far if not lane & far else 16 + lane for lane in range(16)]
            )
            for line in range(16):
                if not line & far:
                    one, other = lines[line], lines[line + far]
                    lines[line], lines[line + far] = (
                        builder.shuffle_vector(one, other, upper),
                        builder.shuffle_vector(one, other, lower_half),
                    )
        for line in range(16):
            builder.store(lines[line], place(target, step_to, line), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), lower


TILE = 16
"""Elements along both sides of a tile that is transposed at a time."""


def _turning(pointer: Any, words: bool = False) -> RangeKernel:
    @range_kernel
    def transpose_copy(
        x: Address,
        y: Address,
        boxes: int,
        near: int,
        step_to: int,
        far: int,
        step_from: int,
        outer: int,
        lengths: Words,
        strides_from: Words,
        strides_to: Words,
        part: int,
        parts: int,
    ) -> None:
        """Boxes whose `near` elements lie together in the source, `step_to` apart in the target, and whose `far`
        elements lie together in the target, `step_from` apart in the source; outer dims, the last one first, have
        lengths and strides."""
        source, target = pointer(x), pointer(y)
        tiles_near, tiles_far = (near + TILE - 1) // TILE, (far + TILE - 1) // TILE
        first, last = share(boxes * tiles_near * tiles_far, part, parts)
        for unit in range(first, last):
            box, tile = unit // (tiles_near * tiles_far), unit % (tiles_near * tiles_far)
            begin_near, begin_far = tile // tiles_far * TILE, tile % tiles_far * TILE
            rest, begin, end = box, begin_near + begin_far * step_from, begin_near * step_to + begin_far
            for axis in range(outer):
                length = lengths[axis]
                index = rest % length
                rest = rest // length
                begin += index * strides_from[axis]
                end += index * strides_to[axis]
            width, height = min(TILE, far - begin_far), min(TILE, near - begin_near)
            if words and width == TILE and height == TILE:
                _turn_words(x + 4 * begin, 4 * step_from, y + 4 * end, 4 * step_to)
            elif width == TILE:
                for i in range(height):
                    for j in range(TILE):
                        target[end + i * step_to + j] = source[begin + i + j * step_from]
            else:
                for i in range(height):
                    for j in range(width):
                        target[end + i * step_to + j] = source[begin + i + j * step_from]

    return transpose_copy


TRANSPOSES = {1: _turning(u8), 2: _turning(u16), 4: _turning(u32, words=True), 8: _turning(u64)}


def copy(
    step: Step,
    source: Buffer,
    target: Buffer,
    lengths: Sequence[int],
    strides_from: Sequence[int],
    strides_to: Sequence[int],
) -> Launch:
    """A copy of a box of elements; neighbouring axes that lie behind each other on both sides become one."""
    axes: list[tuple[int, int, int]] = []
    for length, one, other in zip(lengths, strides_from, strides_to, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == one * length and axes[-1][2] == other * length:
            axes[-1] = (axes[-1][0] * length, one, other)
        else:
            axes.append((length, one, other))
    near = next((index for index, axis in enumerate(axes[:-1]) if axis[1] == 1), None)
    if near is not None and axes[-1][2] == 1 and axes[-1][1] != 0 and min(axes[near][0], axes[-1][0]) >= TILE // 2:
        return _launch_transpose(step, source, target, axes.pop(near), axes)
    if near is not None and axes[-1][0] < TILE // 2 < axes[near][0]:
        axes.append(axes.pop(near))
    count, step_from, step_to = axes.pop() if axes else (1, 1, 1)
    rows = math.prod(length for length, _, _ in axes)
    work = rows * count * (0.5 if step_from == step_to == 1 else 1.5)
    return Launch(
        COPIES[source.dtype.itemsize],
        step.parts(rows, work),
        source=source,
        target=target,
        rows=rows,
        count=count,
        step_from=step_from,
        step_to=step_to,
        **_outer(axes),
    )


def _outer(axes: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Axes that kernels walk, as lengths and strides."""
    lengths, strides_from, strides_to = zip(*axes[::-1], strict=True) if axes else ((), (), ())
    return {"outer": len(axes), "lengths": lengths, "strides_from": strides_from, "strides_to": strides_to}


def _launch_transpose(
    step: Step, source: Buffer, target: Buffer, near: tuple[int, int, int], axes: list[tuple[int, int, int]]
) -> Launch:
    far = axes.pop()
    boxes = math.prod(length for length, _, _ in axes)
    units = boxes * -(-near[0] // TILE) * -(-far[0] // TILE)
    return Launch(
        TRANSPOSES[source.dtype.itemsize],
        step.parts(units, boxes * near[0] * far[0] * 1.0),
        x=source,
        y=target,
        boxes=boxes,
        near=near[0],
        step_to=near[2],
        far=far[0],
        step_from=far[1],
        **_outer(axes),
    )


@native(reshape, flatten, squeeze, unsqueeze, empty=True)
def plan_view(step: Step) -> Planned:
    """The same elements."""
    return View(step.inputs[0]) if step.inputs[0] is not None and step.inputs[0].count else None


@native(transpose)
def plan_transpose(step: Step) -> Planned:
    """Read along the permuted axes."""
    x = step.inputs[0]
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    order = step.attributes["perm"]
    order = list(range(len(x.shape)))[::-1] if order is None else [axis % len(x.shape) for axis in order]
    if [axis for axis in order if x.shape[axis] != 1] == sorted(axis for axis in order if x.shape[axis] != 1):
        return View(x)
    y = step.output()
    return copy(step, x, y, y.shape, [x.strides[axis] for axis in order], y.strides)


@native(concat, empty=True)
def plan_concat(step: Step) -> Planned:
    """One copy for each input that has elements."""
    y = step.output()
    axis = step.attributes["axis"] % len(y.shape)
    launches, start = [], 0
    for x in step.inputs:
        if x is None or x.dtype != y.dtype or x.dtype.itemsize not in COPIES:
            return None
        if not x.count:
            continue
        place = y.view(x.shape, start * y.strides[axis])
        copying = copy(step, x, place, x.shape, x.strides, y.strides)
        together = math.prod(y.shape[:axis]) == 1
        launches.append(copying.changed(copied=(x, place)) if together else copying)
        start += x.shape[axis]
    return launches


@native(expand, empty=True)
def plan_expand(step: Step) -> Planned:
    """Elements that are read again and again."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    if x.count == y.count:
        return View(x)
    shape = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    steps = [0 if length == 1 else stride for length, stride in zip(shape, x.view(shape).strides, strict=True)]
    return copy(step, x, y, y.shape, steps, y.strides)


@native(tile)
def plan_tile(step: Step) -> Planned:
    """Each axis as an axis of repeats, whose elements are the same, and the axis itself."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    lengths, strides, places = [], [], []
    for length, whole, one, other in zip(x.shape, y.shape, x.strides, y.strides, strict=True):
        lengths += [whole // length, length]
        strides += [0, one]
        places += [other * length, other]
    return copy(step, x, y, lengths, strides, places)


@native(split)
def plan_split(step: Step) -> Planned:
    """Parts that lie together are views."""
    x = step.inputs[0]
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    axis, lengths = step.attributes["axis"] % len(x.shape), step.constant(1)
    if lengths is None and len(step.inputs) > 1 and step.inputs[1] is not None:
        return None
    parts = (
        equal_parts(x.shape[axis], step.attributes["num_outputs"] or len(step.results))
        if lengths is None
        else [int(item) for item in lengths]
    )
    if len(parts) != len(step.results) or sum(parts) != x.shape[axis] or min(parts) < 1:
        return None
    launches: list[Launch] = []
    for index, start in enumerate(itertools.accumulate(parts[:-1], initial=0)):
        if not step.is_used(index):
            continue
        shape = (*x.shape[:axis], parts[index], *x.shape[axis + 1 :])
        place = x.view(shape, start * x.strides[axis])
        if math.prod(x.shape[:axis]) == 1:
            step.outputs[index] = place
        else:
            launches.append(copy(step, place, step.output(index), shape, x.strides, step.output(index).strides))
    return launches


@native(depth_to_space, space_to_depth)
def plan_blocks(step: Step) -> Planned:
    """Six axes in another order."""
    x, block = step.inputs[0], step.attributes["blocksize"]
    if x is None or len(x.shape) != 4 or x.dtype.itemsize not in COPIES:
        return None
    n, c, h, w = x.shape
    row_major = step.attributes["mode"] == "DCR"
    if step.node.op is depth_to_space:
        left = c // (block * block)
        shape = (n, block, block, left, h, w) if row_major else (n, left, block, block, h, w)
        order = (0, 3, 4, 1, 5, 2) if row_major else (0, 1, 4, 2, 5, 3)
    else:
        shape = (n, c, h // block, block, w // block, block)
        order = (0, 3, 5, 1, 2, 4) if row_major else (0, 1, 3, 5, 2, 4)
    seen, y = x.view(shape), step.output()
    permuted = y.view([shape[axis] for axis in order])
    return copy(step, x, permuted, permuted.shape, [seen.strides[axis] for axis in order], permuted.strides)


@native(slice_)
def plan_slice(step: Step) -> Planned:
    """Constant bounds; a box whose elements lie together is a view."""
    x = step.inputs[0]
    bounds = [None if step.inputs[index] is None else step.constant(index) for index in range(1, len(step.inputs))]
    if (
        x is None
        or x.dtype.itemsize not in COPIES
        or any(item is None and step.inputs[index] is not None for index, item in enumerate(bounds, 1))
    ):
        return None
    starts, stops, *others = [None if item is None else [int(part) for part in item] for item in bounds]
    assert starts is not None
    assert stops is not None
    axes = others[0] if others and others[0] is not None else list(range(len(starts)))
    steps = others[1] if len(others) > 1 and others[1] is not None else [1] * len(starts)
    begin, strides = 0, list(x.strides)
    for start, stop, axis, stride in zip(starts, stops, axes, steps, strict=True):
        first, _, _ = slice(start, stop, stride).indices(x.shape[axis])
        begin += first * x.strides[axis]
        strides[axis] = x.strides[axis] * stride
    shape = step.results[0][1] if step.results[0] is not None else ()
    place = x.view(shape, begin)
    if all(length == 1 or one == other for length, one, other in zip(shape, strides, place.strides, strict=True)):
        return View(place)
    return copy(step, place, step.output(), shape, strides, step.output().strides)
