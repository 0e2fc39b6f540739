"""Linear: rows times the transposed weight of a layer; quantized weights are decoded a few rows at a time."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.weight_array import Blocks
from ..elementwise.declare import fitting, quiet
from ..rules.precision import is_narrow

DECODED = 1 << 20
"""Elements of a weight that are decoded at a time."""
ACTIVATIONS = ("f32", "q8", "narrow")
GROUP = 32
"""Neighbours of an activation that share a scale where they are rounded to 8 bits."""


def infer_rows(node: Inference, summed: int, mismatch: str) -> None:
    """Infer the shape of rows times a matrix whose axis `summed` has their length; `mismatch` is for errors."""
    x, weight = node.shape(0), node.shape(1)
    if weight is not None and len(weight) != 2:
        node.fail(f"its weight has {counted(len(weight), 'dim')}, not 2")
    if x is not None and not x:
        node.fail("the first input is a scalar")
    sizes = weight or (None, None)
    inner = sizes[summed]
    if x and isinstance(x[-1], int) and isinstance(inner, int) and x[-1] != inner:
        node.fail(f"rows of the first input have {x[-1]} elements, {mismatch.format(inner)}")
    node.set(0, node.dtype(0), None if x is None else (*x[:-1], sizes[1 - summed]))


def _infer(node: Inference) -> None:
    infer_rows(node, 1, "those of the weight {}")


def _lower(node: Node, build: Builder) -> None:
    x, weight, *bias = node.inputs
    transposed = build.add("Transpose", [weight], {"perm": [1, 0]})
    if not bias or bias[0] is None:
        build.add("MatMul", [x, transposed], outputs=node.outputs, name=node.name)
    else:
        build.add("Add", [build.add("MatMul", [x, transposed]), bias[0]], outputs=node.outputs, name=node.name)


def rounded(x: np.ndarray) -> np.ndarray:
    """float32 rows [rows, n] with each run of `GROUP` neighbours rounded to 255 steps of a common size, as Q8_0 stores
    them."""
    count, length = x.shape
    padded = np.zeros((count, -(-length // GROUP) * GROUP), np.float32)
    padded[:, :length] = x
    runs = padded.reshape(count, -1, GROUP)
    step = np.abs(runs).max(2, keepdims=True, initial=0) / np.float32(127)
    inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step != 0)
    return (np.rint(runs * inverse) * step).reshape(padded.shape)[:, :length]


def decoded_rows(weight: np.ndarray | Blocks, start: int, stop: int, dtype: np.dtype) -> np.ndarray:
    """Rows of a weight as numbers of `dtype`."""
    part = weight[start:stop]
    return (part.numpy() if isinstance(part, Blocks) else part).astype(dtype, copy=False)


def activated(x: np.ndarray, activations: str) -> np.ndarray:
    """Activations in the precision that they are multiplied in."""
    if activations not in ACTIVATIONS:
        raise UsageError(
            "E-OP-VALUE", None, f"activations are not rounded to {activations!r}", expected=" or ".join(ACTIVATIONS)
        )
    wide = x.astype(np.float32) if is_narrow(x) else x
    return rounded(wide) if activations == "q8" and wide.dtype == np.float32 else wide


@op(
    "Linear",
    CANDLE,
    infer=_infer,
    lower=_lower,
    stored=True,
    examples=[
        case("f32[2,3]", "f32[4,3]"),
        case("f32[2,5,3]", "f32[4,3]", "f32[4]"),
        case("f32[3]", "f32[4,3]"),
        case("f32[0,3]", "f32[4,3]"),
        case("f32[2,40]", "f32[4,40]", activations="q8"),
    ],
)
@fitting("Linear")
@quiet
def linear(
    x: np.ndarray, weight: np.ndarray | Blocks, bias: np.ndarray | None = None, *, activations: str = "f32"
) -> np.ndarray:
    """``x W^T + bias`` for x [..., in], W [out, in] and bias [out], in the dtype of x; narrow and quantized numbers are
    multiplied in f32.

    `activations` are taken as they are, or for ``q8`` rounded to 8 bits, each run of 32 neighbours with a scale of its
    own. For ``narrow`` kernels may round them to bfloat16 where the weight is that, and to 12 bits, sign included, in
    runs of 32 where it has 16 bits; and elements of such a weight by the 2^-16th of the greatest of 32 neighbours.
    """
    rows = activated(x.reshape(-1, x.shape[-1]), activations)
    out, inner = weight.shape
    y = np.empty((len(rows), out), rows.dtype)
    step = max(1, DECODED // max(1, inner))
    for start in range(0, out, step):
        y[:, start : start + step] = rows @ decoded_rows(weight, start, start + step, rows.dtype).T
    if bias is not None:
        y += bias.astype(y.dtype, copy=False)
    return y.reshape(*x.shape[:-1], out).astype(x.dtype, copy=False)
