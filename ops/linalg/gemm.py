"""Gemm: alpha * A' * B' + beta * C, where A' and B' are optionally transposed."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference, Shape
from ..elementwise.declare import fitting, quiet
from ..rules.precision import stored_narrower, widened
from ..rules.shape_rules import shape_error


def product(node: Inference) -> None:
    """(m, n) of matrices."""
    shapes = [node.shape(0), node.shape(1)]
    for shape in shapes:
        if shape is not None and len(shape) != 2:
            node.fail(f"its inputs are matrices, one has {counted(len(shape), 'dim')}")
    a, b = (shape or (None, None) for shape in shapes)
    rows, inner = a[::-1] if node.attributes["transA"] else a
    other, columns = b[::-1] if node.attributes["transB"] else b
    if isinstance(inner, int) and isinstance(other, int) and inner != other:
        node.fail(f"columns of the first matrix ({inner}) are not as many as rows of the second ({other})")
    added = node.shape(2) if len(node) > 2 else None
    if added is not None and not _fits(added, (rows, columns)):
        node.fail(f"C of shape {list(added)} does not broadcast to {[rows, columns]}")
    node.set(0, node.dtype(0), (rows, columns))


def _fits(added: Shape, result: Shape) -> bool:
    """Whether C may broadcast to the result: unidirectionally, the result does not grow."""
    pairs = zip(reversed(added), reversed(result), strict=False)
    return len(added) <= 2 and all(
        one in (1, other) for one, other in pairs if isinstance(one, int) and isinstance(other, int)
    )


@op(
    "Gemm",
    since=13,
    types="T=float+long T T",
    traits=(Trait.PRODUCT,),
    weights={1: 1},
    infer=product,
    examples=[
        case("f32[2,3]", "f32[3,4]", "f32[4]"),
        case("f32[3,2]", "f32[3,4]", transA=1, alpha=0.5),
        case("f32[2,3]", "f32[4,3]", "f32[2,1]", transB=1, beta=2.0),
        case("f32[2,0]", "f32[0,3]", "f32[]"),
        case("f32[3,2]", "f32[4,3]", "f32[1,4]", transA=1, transB=1),
    ],
)
@fitting("Gemm")
@quiet
@stored_narrower
@widened
def gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> np.ndarray:
    """Shape (m, n); `c` broadcasts to it. Integers are multiplied as such and scaled in f64."""
    y = np.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        y = alpha * y
    if c is not None and not _fits(c.shape, y.shape):
        raise shape_error("Gemm", f"C of shape {list(c.shape)} does not broadcast to {list(y.shape)}")
    if c is not None and beta != 0:
        y = y + (c if beta == 1 else beta * c)
    return y.astype(a.dtype, copy=False)


@upgrade(gemm, below=7)
def broadcast_was_asked_for(node: Node, build: Builder) -> None:
    """Before opset 7 an attribute allowed C to broadcast, with the same rules."""
    node.attributes.pop("broadcast", None)
