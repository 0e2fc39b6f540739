"""Softmax: exp(x - max) / sum along an axis."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op, upgrade
from ..rules.precision import is_narrow
from ..rules.shape_rules import same_as_input


@op(
    "Softmax",
    since=13,
    types="float",
    infer=same_as_input,
    examples=[case("f32[2,3,4]"), case("f32[2,3,4]", axis=0), case("f32[0,3]", axis=1)],
)
def softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Shape of `x`; sums to one along `axis`.

    Steps are rounded to a narrow dtype as the function body of the standard does, a sum too large for it aside.
    """

    def stored(step: np.ndarray) -> np.ndarray:
        return step.astype(x.dtype).astype(np.float32) if is_narrow(x) else step

    wide = x.astype(np.float32) if is_narrow(x) else x
    powers = stored(np.exp(stored(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))))
    total = np.sum(powers, axis=axis, keepdims=True)
    with np.errstate(over="ignore"):
        rounded = stored(total)
    made: np.ndarray = (powers / np.where(np.isfinite(rounded), rounded, total)).astype(x.dtype, copy=False)
    return made


@upgrade(softmax, below=13)
def over_flattened(node: Node, build: Builder) -> None:
    """Before opset 13 the input was taken as a matrix whose rows start at `axis` (1 where it is not given)."""
    axis = node.attributes.pop("axis", 1)
    (x,) = node.inputs
    flat = build.add("Flatten", [x], {"axis": axis})
    rows = build.add(softmax, [flat], {"axis": -1})
    build.add("Reshape", [rows, build.add("Shape", [x])], outputs=node.outputs)
