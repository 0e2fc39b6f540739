"""Native OneHot, Trilu and ConstantOfShape: tensors that mostly hold one value."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.jit.address import i32, i64, share, u8, u16, u32, u64
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.elementwise_fusion import POINTERS
from ...runtime.plan.kernel_api import Apply, Chain, Launch, Planned, Step, native
from ..kernels.strided_copy import COPIES
from .constant_of_shape import constant_of_shape
from .one_hot import one_hot
from .trilu import trilu

WIDTHS = {1: u8, 2: u16, 4: u32, 8: u64}


def _encoding(pointer: Any) -> RangeKernel:
    @range_kernel
    def encoded(
        indices: Address,
        nbytes: int,
        values: Address,
        target: Address,
        stacks: int,
        depth: int,
        inner: int,
        part: int,
        parts: int,
    ) -> None:
        """Stacks of `inner` indices of `nbytes` bytes along a new axis of length `depth`; values are off and on."""
        values, target = pointer(values), pointer(target)
        off, on = values[0], values[1]
        first, last = share(stacks, part, parts)
        for stack in range(first, last):
            base = stack * depth * inner
            for j in range(depth * inner):
                target[base + j] = off
            for j in range(inner):
                index = i64(indices)[stack * inner + j] if nbytes == 8 else np.int64(i32(indices)[stack * inner + j])
                index = index + depth if index < 0 else index
                if 0 <= index < depth:
                    target[base + index * inner + j] = on

    return encoded


def _triangle(pointer: Any) -> RangeKernel:
    @range_kernel
    def triangle(
        source: Address,
        target: Address,
        rows: int,
        height: int,
        columns: int,
        diagonal: int,
        upper: int,
        part: int,
        parts: int,
    ) -> None:
        """Rows of matrices of `height` rows; `upper`: what is above the diagonal stays."""
        source, target = pointer(source), pointer(target)
        zero = source[0] ^ source[0]
        first, last = share(rows, part, parts)
        for row in range(first, last):
            edge = row % height + diagonal
            edge = min(max(edge if upper != 0 else edge + 1, 0), columns)
            base = row * columns
            begin, end = (edge, columns) if upper != 0 else (0, edge)
            for j in range(begin):
                target[base + j] = zero
            for j in range(begin, end):
                target[base + j] = source[base + j]
            for j in range(end, columns):
                target[base + j] = zero

    return triangle


ENCODED = {size: _encoding(pointer) for size, pointer in WIDTHS.items()}
TRIANGLES = {size: _triangle(pointer) for size, pointer in WIDTHS.items()}


@native(one_hot)
def plan_one_hot(step: Step) -> Planned:
    """Plan i64 and i32 indices."""
    indices, _, values = step.inputs
    y = step.output()
    if (
        indices is None
        or values is None
        or indices.dtype.name not in ("int64", "int32")
        or values.count != 2
        or y.dtype.itemsize not in COPIES
    ):
        return None
    axis = step.attributes["axis"] % len(y.shape)
    stacks, inner = math.prod(indices.shape[:axis]), math.prod(indices.shape[axis:])
    return Launch(
        ENCODED[y.dtype.itemsize],
        step.parts(stacks, y.count * 0.5),
        indices=indices,
        nbytes=indices.dtype.itemsize,
        values=values,
        target=y,
        stacks=stacks,
        depth=y.shape[axis],
        inner=inner,
    )


@native(trilu)
def plan_trilu(step: Step) -> Planned:
    """Plan diagonals that are known."""
    x, known = step.inputs[0], step.constant(1)
    if (
        x is None
        or x.dtype.itemsize not in COPIES
        or (known is None and len(step.inputs) > 1 and step.inputs[1] is not None)
    ):
        return None
    rows, columns = x.shape[-2:]
    diagonal = 0 if known is None else min(max(int(known.reshape(-1)[0]), -rows - 1), columns + 1)
    return Launch(
        TRIANGLES[x.dtype.itemsize],
        step.parts(x.count // columns, x.count * 0.5),
        source=x,
        target=step.output(),
        rows=x.count // columns,
        height=rows,
        columns=columns,
        diagonal=diagonal,
        upper=int(bool(step.attributes["upper"])),
    )


@native(constant_of_shape, empty=True)
def plan_constant(step: Step) -> Planned:
    """Fill the output with one value."""
    value = step.attributes["value"]
    fill = step.constant_buffer(np.zeros((), np.float32) if value is None else value.reshape(()))
    y = step.output()
    return Chain((Apply(".Identity", (fill,), (), fill.dtype, y.dtype),), y) if fill.dtype.name in POINTERS else None
