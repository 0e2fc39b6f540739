"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.tensor.dtype import BOOL
from ..core.expression import apply, apply_all, cast, op_named, shape_error
from ..core.registry import FUNCTIONS, function, method, operation
from ..core.tensor import Tensor
from .operands import apply_in, broadcast, expression_of, fitting, memoized, require_one_dtype

__all__ = ["einsum", "matmul"]


def _product(input: Any, other: Any) -> Tensor:
    a, b = expression_of(input), expression_of(other)
    one, two = a.type.shape, b.type.shape
    if not one or not two:
        raise shape_error(f"matmul: {a.type} and {b.type} need at least one dim each")
    require_one_dtype((a, b), "matmul")
    if one[-1] != two[-2 if len(two) > 1 else 0]:
        raise shape_error(f"matmul: shapes {list(one)} and {list(two)} cannot be multiplied")
    if len(one) > 2 or len(two) > 2:
        broadcast((one[:-2], two[:-2]), "matmul")
    if a.type.dtype is BOOL:
        raise UsageError("E-TENSOR-DTYPE", None, "matmul of booleans is not defined", hint="Convert them first")
    return Tensor(apply_in(op_named("MatMul"), [a, b]))


_memoized = memoized(_product)


@operation("__matmul__")
def matmul(input: Any, other: Any) -> Tensor:
    """The product of matrices, vectors, and stacks of matrices, which broadcast."""
    return _memoized(input, other)


@method("__rmatmul__")
def _reflected(self: Tensor, other: Any) -> Tensor:
    return matmul(other, self)


def _of_ranks(name: str, document: str, ranks: tuple[int, int]) -> None:
    def made(input: Any, other: Any) -> Tensor:
        a, b = expression_of(input), expression_of(other)
        if (len(a.type.shape), len(b.type.shape)) != ranks:
            raise shape_error(
                f"{name}: {a.type} and {b.type} are not tensors of {ranks[0]} and {counted(ranks[1], 'dim')}"
            )
        return matmul(Tensor(a) if a.holder is None else input, other)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


for _row in (
    ("mm", "The product of two matrices.", (2, 2)),
    ("bmm", "The products of two stacks of matrices.", (3, 3)),
    ("mv", "The product of a matrix and a vector.", (2, 1)),
    ("dot", "The inner product of two vectors.", (1, 1)),
):
    _of_ranks(*_row)


@operation("ger")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of all pairs of elements of two vectors."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise shape_error(f"outer: tensors of shapes {list(input.shape)} and {list(vec2.shape)} are not vectors")
    return input.reshape(-1, 1) * vec2.reshape(1, -1)


def scaled(x: Any, factor: float) -> Any:
    """A tensor times a number, which loses its fraction where the tensor has integers."""
    if factor == 1:
        return x
    if not isinstance(x, Tensor) or x.dtype.kind in ("float", "complex"):
        return x * factor
    return x & bool(factor) if x.dtype is BOOL else x * int(factor)


@operation()
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    product = FUNCTIONS["mm"](mat1, mat2)
    return scaled(product, alpha) + scaled(input, beta)


@function()
def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products over named dims, as in ``einsum("bij,bjk->bik", a, b)``."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    inputs = [expression_of(item) for item in operands]
    require_one_dtype(inputs, "einsum")
    op = op_named("Einsum")
    dtype = inputs[0].type.dtype
    near = fitting(op, dtype)
    found = apply_all(op, [cast(item, near) for item in inputs], {"equation": equation})[0]
    return Tensor(cast(found, dtype))


@operation()
def det(input: Tensor) -> Tensor:
    """The determinant of a matrix, or of each of a stack."""
    return Tensor(apply(op_named("Det"), [input.expression]))
