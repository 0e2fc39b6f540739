"""MatMul: products of matrices, batches of them, and vectors, with NumPy's broadcasting."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference, Shape
from ..elementwise.declare import fitting, quiet
from ..rules.precision import stored_narrower, widened
from ..rules.shape_rules import broadcast


def product_shape(node: Inference, left: Shape | None, right: Shape | None) -> Shape | None:
    """(..., m, k) x (..., k, n) gives (..., m, n); a vector stands for a row on the left and for a column on the
    right."""
    if left is None or right is None:
        return None
    if not left or not right:
        node.fail("a scalar has no matrix product")
    inner, other = left[-1], right[-2] if len(right) > 1 else right[0]
    if isinstance(inner, int) and isinstance(other, int) and inner != other:
        node.fail(f"columns of the first input ({inner}) are not as many as rows of the second ({other})")
    stack = broadcast(left[:-2], right[:-2])
    rows, columns = left[-2:-1] if len(left) > 1 else (), right[-1:] if len(right) > 1 else ()
    return None if stack is None else (*stack, *rows, *columns)


def product(node: Inference) -> None:
    """The product of the first two inputs."""
    node.set(0, node.dtype(0), product_shape(node, node.shape(0), node.shape(1)))


@op(
    "MatMul",
    since=13,
    types="T=float+long T",
    traits=(Trait.PRODUCT,),
    weights={1: -1},
    infer=product,
    examples=[
        case("f32[2,3]", "f32[3,4]"),
        case("f32[2,1,3,5]", "f32[4,5,2]"),
        case("f32[3]", "f32[3]"),
        case("f32[2,3,4]", "f32[4]"),
        case("f32[3]", "f32[2,3,4]"),
        case("f32[2,0]", "f32[0,3]"),
        case("i32[2,3]", "i32[3,4]"),
        case("f32[2,3,4]", "f32[4,5]"),
    ],
)
@fitting("MatMul")
@quiet
@stored_narrower
@widened
def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product; a stack of matrices times one matrix is one product of BLAS."""
    if b.ndim == 2 and a.ndim > 2 and a.shape[-1]:
        return np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)
