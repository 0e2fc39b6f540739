"""Native OneHot, Trilu and ConstantOfShape: tensors that are mostly one value."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.fusion import POINTERS, Apply, Chain
from ...runtime.kernel import RangeKernel, range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import i32, i64, share, u8, u16, u32, u64
from .constant_of_shape import constant_of_shape
from .layout_kernel import COPIES
from .one_hot import one_hot
from .trilu import trilu

WIDTHS = {1: u8, 2: u16, 4: u32, 8: u64}


def _encoding(pointer: Any) -> RangeKernel:
    @range_kernel
    def encoded(args: Any, part: Any, parts: Any) -> None:
        """Indices, bytes of one, values (off, on), to; stacks, length of the new axis, indices of a stack."""
        nbytes, values, target, stacks, depth, inner = args[1], pointer(args[2]), pointer(args[3]), args[4], args[5], args[6]
        off, on = values[0], values[1]
        first, last = share(stacks, part, parts)
        for stack in range(first, last):
            base = stack * depth * inner
            for j in range(depth * inner):
                target[base + j] = off
            for j in range(inner):
                index = i64(args[0])[stack * inner + j] if nbytes == 8 else np.int64(i32(args[0])[stack * inner + j])
                index = index + depth if index < 0 else index
                if 0 <= index < depth:
                    target[base + index * inner + j] = on

    return encoded


def _triangle(pointer: Any) -> RangeKernel:
    @range_kernel
    def triangle(args: Any, part: Any, parts: Any) -> None:
        """From, to, rows, rows of a matrix, columns, diagonal, whether what is above it stays."""
        source, target, rows, height, columns, diagonal, upper = pointer(args[0]), pointer(args[1]), args[2], args[3], args[4], args[5], args[6]
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
    """Indices of i64 and i32."""
    indices, _, values = step.inputs
    y = step.output()
    if indices is None or values is None or indices.dtype.name not in ("int64", "int32") or values.count != 2 or y.dtype.itemsize not in COPIES:
        return None
    axis = step.attributes["axis"] % len(y.shape)
    stacks, inner = math.prod(indices.shape[:axis]), math.prod(indices.shape[axis:])
    arguments = (indices, indices.dtype.itemsize, values, y, stacks, y.shape[axis], inner)
    return Launch(ENCODED[y.dtype.itemsize], arguments, step.parts(stacks, y.count * 0.5))


@native(trilu)
def plan_trilu(step: Step) -> Planned:
    """A diagonal that is known."""
    x, known = step.inputs[0], step.constant(1)
    if x is None or x.dtype.itemsize not in COPIES or (known is None and len(step.inputs) > 1 and step.inputs[1] is not None):
        return None
    rows, columns = x.shape[-2:]
    diagonal = 0 if known is None else min(max(int(known.reshape(-1)[0]), -rows - 1), columns + 1)
    arguments = (x, step.output(), x.count // columns, rows, columns, diagonal, int(bool(step.attributes["upper"])))
    return Launch(TRIANGLES[x.dtype.itemsize], arguments, step.parts(x.count // columns, x.count * 0.5))


@native(constant_of_shape, empty=True)
def plan_constant(step: Step) -> Planned:
    """One value everywhere."""
    value = step.attributes["value"]
    fill = step.held(np.zeros((), np.float32) if value is None else value.reshape(()))
    y = step.output()
    return Chain((Apply(".Identity", (fill,), (), fill.dtype, y.dtype),), y) if fill.dtype.name in POINTERS else None
