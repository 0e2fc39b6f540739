"""Strided copies of boxes of elements; those that transpose go through tiles of words."""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ...runtime.jit.address import share, u8, u16, u32, u64
from ...runtime.jit.kernel_arguments import Address, Words
from ...runtime.jit.numba_lazy import intrinsic, types
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Step

PIECE = 4096
"""Elements of a row that a part copies at a time."""
FINER = 2
"""Copies are cut into this many times the usual parts: small ones follow each other, and threads wait awake."""


@inlined
def _places(box: int, outer: int, lengths: Words, strides_from: Words, strides_to: Words) -> tuple[int, int]:
    """Elements before a box on both sides."""
    rest, begin, end = box, 0, 0
    for axis in range(outer):
        length = lengths[axis]
        index = rest % length
        rest = rest // length
        begin += index * strides_from[axis]
        end += index * strides_to[axis]
    return begin, end


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
        pieces = (count + PIECE - 1) // PIECE
        first, last = share(rows * pieces, part, parts)
        for unit in range(first, last):
            begin, end = _places(unit // pieces, outer, lengths, strides_from, strides_to)
            low = unit % pieces * PIECE
            high = min(low + PIECE, count)
            if step_from == 1 and step_to == 1:
                for j in range(low, high):
                    target[end + j] = source[begin + j]
            else:
                for j in range(low, high):
                    target[end + j * step_to] = source[begin + j * step_from]

    return strided_copy


COPIES = {1: _copying(u8), 2: _copying(u16), 4: _copying(u32), 8: _copying(u64)}


WORDS = ir.VectorType(ir.IntType(32), 16)


@intrinsic
def transpose_words(typing: Any, source: Any, step_from: Any, target: Any, step_to: Any) -> Any:
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


def _transposing(pointer: Any, words: bool = False) -> RangeKernel:
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
        """Boxes whose `near` elements are adjacent in the source, `step_to` apart in the target, and whose `far`
        elements are adjacent in the target, `step_from` apart in the source; outer dims, the last one first, have
        lengths and strides."""
        source, target = pointer(x), pointer(y)
        tiles_near, tiles_far = (near + TILE - 1) // TILE, (far + TILE - 1) // TILE
        first, last = share(boxes * tiles_near * tiles_far, part, parts)
        for unit in range(first, last):
            box, tile = unit // (tiles_near * tiles_far), unit % (tiles_near * tiles_far)
            begin_near, begin_far = tile // tiles_far * TILE, tile % tiles_far * TILE
            begin, end = _places(box, outer, lengths, strides_from, strides_to)
            begin, end = begin + begin_near + begin_far * step_from, end + begin_near * step_to + begin_far
            width, height = min(TILE, far - begin_far), min(TILE, near - begin_near)
            if words and width == TILE and height == TILE:
                transpose_words(x + 4 * begin, 4 * step_from, y + 4 * end, 4 * step_to)
            elif width == TILE:
                for i in range(height):
                    for j in range(TILE):
                        target[end + i * step_to + j] = source[begin + i + j * step_from]
            else:
                for i in range(height):
                    for j in range(width):
                        target[end + i * step_to + j] = source[begin + i + j * step_from]

    return transpose_copy


TRANSPOSES = {1: _transposing(u8), 2: _transposing(u16), 4: _transposing(u32, words=True), 8: _transposing(u64)}


def copy(
    step: Step,
    source: Buffer,
    target: Buffer,
    lengths: Sequence[int],
    strides_from: Sequence[int],
    strides_to: Sequence[int],
) -> Launch:
    """A copy of a box of elements; neighbouring axes that follow each other on both sides become one."""
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
        step.parts(rows * -(-count // PIECE), work, FINER),
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
        step.parts(units, boxes * near[0] * far[0] * 1.0, FINER),
        x=source,
        y=target,
        boxes=boxes,
        near=near[0],
        step_to=near[2],
        far=far[0],
        step_from=far[1],
        **_outer(axes),
    )
