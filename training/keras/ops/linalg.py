"""Products and decompositions of matrices by Keras' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....tensors import linalg as _linalg
from ....tensors.core.tensor import Tensor
from .operation import as_floats, named_functions, operation, ours, tensor_of

OF_MATRICES = ("cholesky", "det", "eigh", "inv", "pinv", "qr", "slogdet", "solve")
__all__ = [
    *OF_MATRICES, "cross", "dot", "einsum", "inner", "logdet", "matmul", "norm", "outer", "svd", "tensordot", "vdot",
]  # fmt: skip


def _of_matrices(name: str) -> Callable[..., Any]:
    return lambda *matrices, **options: getattr(_linalg, name)(*[as_floats(each) for each in matrices], **options)


globals().update(named_functions(OF_MATRICES, _of_matrices))


@operation
def matmul(x1: Any, x2: Any) -> Tensor:
    """The product of matrices."""
    return ours("matmul")(tensor_of(x1), tensor_of(x2))


@operation
def dot(x1: Any, x2: Any) -> Tensor:
    """The sum of products along the last axis of x1 and the last but one of x2, as NumPy's."""
    one, other = tensor_of(x1), tensor_of(x2)
    if not one.ndim or not other.ndim:
        return one * other
    axis = other.ndim - 2 if other.ndim > 1 else 0
    return ours("tensordot")(one, other, ([one.ndim - 1], [axis]))


@operation
def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Sums of products by letters of axes."""
    return ours("einsum")(subscripts, *[tensor_of(each) for each in operands])


@operation
def inner(x1: Any, x2: Any) -> Tensor:
    """The sum of products along the last axes."""
    return ours("inner")(tensor_of(x1), tensor_of(x2))


@operation
def outer(x1: Any, x2: Any) -> Tensor:
    """The product of each element with each."""
    return tensor_of(x1).reshape(-1, 1) * tensor_of(x2).reshape(1, -1)


@operation
def vdot(x1: Any, x2: Any) -> Tensor:
    """The sum of products of all elements."""
    return (tensor_of(x1).reshape(-1).conj() * tensor_of(x2).reshape(-1)).sum()


@operation
def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Tensor:
    """The sum of products along axes: a number of them, or lists of those of each tensor."""
    given = axes if isinstance(axes, int) else tuple([each] if isinstance(each, int) else list(each) for each in axes)
    return ours("tensordot")(tensor_of(x1), tensor_of(x2), given)


@operation
def cross(x1: Any, x2: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    """The vector product of vectors of three elements."""
    first, second, result = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    found = ours("cross")(tensor_of(x1).movedim(first, -1), tensor_of(x2).movedim(second, -1), dim=-1)
    return found.movedim(-1, result)


@operation
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The norm of a vector or a matrix; of all elements without an order and axes."""
    dims = list(axis) if isinstance(axis, tuple) else axis
    return _linalg.norm(as_floats(x), ord, dims, keepdims)


@operation
def logdet(x: Any) -> Tensor:
    """The logarithm of the determinant."""
    return _linalg.slogdet(as_floats(x))[1]


@operation
def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular vectors and values, or the values alone."""
    if not compute_uv:
        return _linalg.svdvals(as_floats(x))
    return _linalg.svd(as_floats(x), full_matrices=full_matrices)
