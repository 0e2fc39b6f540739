"""MatMul, Gemm and Linear on the device, in tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.cuda.kernel.elementwise import chain_step
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import over
from ...runtime.cuda.matmul.tiled import Axes, Contraction, cublaslt_product, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain
from .gemm import gemm
from .gemv_cuda import of_experts, rows_by, rows_times
from .linear import GROUP, linear
from .matmul import matmul
from .matmul_experts import matmul_experts


def matrices(a: Buffer, b: Buffer, y: Buffer, stack: Sequence[int]) -> Launch:
    """Products of two stacks of matrices that broadcast to `stack`; `y` is contiguous."""
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    inner = a.view((*a.shape[:-2], 1)), b.view((*b.shape[:-2], 1))
    left, right = (
        [stride * size for stride in over(item, (*stack, 1)).strides[:-1]]
        for item, size in zip(inner, (rows * depth, depth * columns), strict=True)
    )
    each = [1] * len(stack)
    for axis in range(len(stack) - 2, -1, -1):
        each[axis] = each[axis + 1] * stack[axis + 1]
    return product(
        a,
        b,
        y,
        Contraction(
            stack=Axes(stack, left, right, [step * rows * columns for step in each]),
            rows=Axes([rows], [depth], None, [columns]),
            columns=Axes([columns], None, [1], [1]),
            depth=Axes([depth], [1], [columns], None),
        ),
    )


@cuda(matmul)
def matmul_on_device(step: Step) -> Planned:
    """Multiply matrices; vectors are matrices of one row or column."""
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
    """Multiply, then scale and add where the node does."""
    a, b, c, y = step.input(0), step.input(1), step.optional_input(2), step.output()
    alpha, beta = step.attributes["alpha"], step.attributes["beta"]
    depth, rows = a.shape if step.attributes["transA"] else a.shape[::-1]
    columns, across = b.shape if step.attributes["transB"] else b.shape[::-1]
    left = (1, rows) if step.attributes["transA"] else (depth, 1)
    right = (1, depth) if step.attributes["transB"] else (columns, 1)
    if across != depth:
        return "the shapes of its inputs contradict each other"
    axes = Contraction(
        stack=Axes([], [], [], []),
        rows=Axes([rows], [left[0]], None, [columns]),
        columns=Axes([columns], None, [right[1]], [1]),
        depth=Axes([depth], [left[1]], [right[0]], None),
    )
    if c is not None and alpha == beta == 1 and c.shape in ((columns,), (1, columns)):
        whole = cublaslt_product(a, b, y, axes, bias=c)
        if whole is not None:
            return whole
    plain = alpha == 1 and c is None
    target = y if plain else step.temporary(y.dtype, y.shape)
    found = product(a, b, target, axes)
    if plain:
        return found
    if c is None:
        return [found, Chain((chain_step(_scaled, [target], y.dtype, alpha),), y)]
    return [found, Chain((chain_step(_added, [target, c], y.dtype, alpha, beta),), y)]


def _plus(x: float, bias: float) -> float:
    return x + bias


@cuda(linear)
def linear_on_device(step: Step) -> Planned:
    """Multiply rows by the transposed weights."""
    x, w, bias, y = step.input(0), step.input(1), step.optional_input(2), step.output()
    rows, depth, columns = x.count // w.shape[-1], w.shape[-1], w.shape[0]
    rounded = step.attributes["activations"] == "q8"
    if rounded and (depth % GROUP or x.dtype != np.float32):
        return f"activations for 8-bit products must be f32 rows of whole groups of {GROUP}"
    if not rounded and bias is not None:
        axes = rows_times(x.view((rows, depth)), w, y)
        whole = cublaslt_product(x, w, y, axes, bias=bias)
        if whole is not None:
            return whole
    target = y if bias is None else step.temporary(y.dtype, y.shape)
    found = rows_by(step, x.view((rows, depth)), w, target.view((rows, columns)), rounded)
    return found if bias is None else [*found, Chain((chain_step(_plus, [target, bias], y.dtype),), y)]


@cuda(matmul_experts)
def experts_on_device(step: Step) -> Planned:
    """Multiply each token's row by the rows of its experts, without gathering these."""
    rounded = step.attributes["activations"] == "q8"
    if rounded and (step.input(1).shape[-1] % GROUP or step.input(0).dtype != np.float32):
        return f"activations for 8-bit products must be f32 rows of whole groups of {GROUP}"
    x, w, ids = (step.input(index) for index in range(3))
    return of_experts(step, x, w, ids, step.output(), bool(step.attributes["each"]), rounded)
