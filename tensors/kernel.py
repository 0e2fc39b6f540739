"""kernel: an operation written in Python for one element, or for one row of arrays, compiled for CPU and CUDA.

    @cc.kernel
    def softclip(x, limit):
        return x / (1 + abs(x) / limit)

    @cc.kernel
    def softclip_slope(x, limit):
        inner = 1 + abs(x) / limit
        return 1 / (inner * inner)

    @softclip.gradient
    def softclip_gradient(gradient, x, limit):
        return gradient * softclip_slope(x, limit), None

The gradient is a function of tensors, which may use other kernels and operations; it can be differentiated again where
these can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.base.errors import UsageError

Body = Callable[..., Any]


def kernel(body: Body | None = None, *, rows: Body | None = None, results: Body | None = None) -> Any:
    """Make a kernel of a function of elements, see `ElementKernel`; with `rows` and `results` of rows, see
    `RowKernel`."""
    from .compiled_kernel import CODE, ElementKernel, RowKernel

    if body is not None:
        return ElementKernel(body)
    if rows is None or results is None:
        raise UsageError(CODE, None, "a kernel of rows needs both rows and results", hint="Pass functions of types")
    return lambda body: RowKernel(body, rows, results)
