"""MatMul and Gemm on the device, in tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.cuda.kernel import Launch
from ...runtime.cuda.operand import over
from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.cuda.product import Axes, by_library, product
from ...runtime.cuda.zip import Chain, applied
from ...runtime.launch import Buffer
from .few_cuda import of_experts, rows_by
from .gemm import gemm
from .linear import GROUP, linear
from .matmul import matmul
from .matmul_experts import matmul_experts


def matrices(a: Buffer, b: Buffer, y: Buffer, stack: Sequence[int]) -> Launch:
    """Products of two stacks of matrices that broadcast to `stack`; `y` is contiguous."""
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    inner = a.view((*a.shape[:-2], 1)), b.view((*b.shape[:-2], 1))
    left, right = ([stride * size for stride in over(item, (*stack, 1)).strides[:-1]] for item, size in
                   zip(inner, (rows * depth, depth * columns), strict=True))
    each = [1] * len(stack)
    for axis in range(len(stack) - 2, -1, -1):
        each[axis] = each[axis + 1] * stack[axis + 1]
    return product(
        a, b, y, Axes(stack, left, right, [step * rows * columns for step in each]), Axes([rows], [depth], None, [columns]),
        Axes([columns], None, [1], [1]), Axes([depth], [1], [columns], None),
    )


@cuda(matmul)
def matmul_on_device(step: Step) -> Planned:
    """Vectors are matrices of one row or column."""
    a, b, y = step.input(0), step.input(1), step.output()
    a = a if len(a.shape) > 1 else a.view((1, *a.shape))
    b = b if len(b.shape) > 1 else b.view((*b.shape, 1))
    stack = list(y.shape)
    for item in (step.input(0), step.input(1)):
        if len(item.shape) > 1:
            stack.pop()
    return matrices(a, b, y, stack)


def _scaled(x: float, alpha: float) -> float:
    return alpha * x


def _added(x: float, c: float, alpha: float, beta: float) -> float:
    return alpha * x + beta * c


@cuda(gemm)
def gemm_on_device(step: Step) -> Planned:
    """The product, then scale and addition where there are any."""
    a, b, c, y = step.input(0), step.input(1), step.given(2), step.output()
    alpha, beta = step.attributes["alpha"], step.attributes["beta"]
    depth, rows = a.shape if step.attributes["transA"] else a.shape[::-1]
    columns, across = b.shape if step.attributes["transB"] else b.shape[::-1]
    left = (1, rows) if step.attributes["transA"] else (depth, 1)
    right = (1, depth) if step.attributes["transB"] else (columns, 1)
    if across != depth:
        return "its shapes do not fit"
    axes = (
        Axes([], [], [], []), Axes([rows], [left[0]], None, [columns]), Axes([columns], None, [right[1]], [1]),
        Axes([depth], [left[1]], [right[0]], None),
    )
    if c is not None and alpha == beta == 1 and c.shape in ((columns,), (1, columns)):
        whole = by_library(a, b, y, *axes, bias=c)
        if whole is not None:
            return whole
    plain = alpha == 1 and c is None
    target = y if plain else step.temporary(y.dtype, y.shape)
    found = product(a, b, target, *axes)
    if plain:
        return found
    if c is None:
        return [found, Chain((applied(_scaled, [target], y.dtype, alpha),), y)]
    return [found, Chain((applied(_added, [target, c], y.dtype, alpha, beta),), y)]


def _plus(x: float, bias: float) -> float:
    return x + bias


@cuda(linear)
def linear_on_device(step: Step) -> Planned:
    """Rows times the transposed weights."""
    x, w, bias, y = step.input(0), step.input(1), step.given(2), step.output()
    rows, depth, columns = x.count // w.shape[-1], w.shape[-1], w.shape[0]
    rounded = step.attributes["activations"] == "q8"
    if rounded and (depth % GROUP or x.dtype != np.float32):
        return f"rows that are rounded to 8 bits are f32, of whole groups of {GROUP}"
    if not rounded and bias is not None:
        whole = by_library(
            x, w, y, Axes([], [], [], []), Axes([rows], [depth], None, [columns]), Axes([columns], None, [depth], [1]), Axes([depth], [1], [1], None),
            bias=bias,
        )
        if whole is not None:
            return whole
    target = y if bias is None else step.temporary(y.dtype, y.shape)
    found = rows_by(step, x.view((rows, depth)), w, target.view((rows, columns)), rounded)
    return found if bias is None else [*found, Chain((applied(_plus, [target, bias], y.dtype),), y)]


@cuda(matmul_experts)
def experts_on_device(step: Step) -> Planned:
    """Each token's row times the rows of its experts, read where they are."""
    rounded = step.attributes["activations"] == "q8"
    if rounded and (step.input(1).shape[-1] % GROUP or step.input(0).dtype != np.float32):
        return f"rows that are rounded to 8 bits are f32, of whole groups of {GROUP}"
    x, w, ids = (step.input(index) for index in range(3))
    return of_experts(step, x, w, ids, step.output(), bool(step.attributes["each"]), rounded)
