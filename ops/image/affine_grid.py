"""AffineGrid: sampling positions from -1 to 1 along each axis, transformed by an affine matrix."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.output_limit import allowed
from ..rules.precision import widened
from ..rules.shape_rules import shape_error


def _infer(node: Inference) -> None:
    theta, size = node.shape(0), node.data(1)
    if theta is not None and len(theta) != 3:
        node.fail(f"matrices have shape {theta}, not (n, 2, 3) or (n, 3, 4)")
    if size is not None:
        node.set(0, node.dtype(0), (size[0], *size[2:], len(size) - 2))
    elif theta is not None and isinstance(theta[1], int):
        node.set(0, node.dtype(0), (theta[0], *(None,) * theta[1], theta[1]))
    else:
        node.set(0, node.dtype(0), None)


@op(
    "AffineGrid",
    since=20,
    types="float i64",
    infer=_infer,
    examples=[
        case("f32[2,2,3]", np.array([2, 3, 4, 5])),
        case("f32[1,3,4]", np.array([1, 2, 3, 4, 5]), align_corners=1),
        case("f32[0,2,3]", np.array([0, 1, 2, 2])),
    ],
)
@widened
def affine_grid(theta: np.ndarray, size: np.ndarray, *, align_corners: int = 0) -> np.ndarray:
    """From matrices [n, r, r + 1] and the shape [n, channels, spatial...] to positions [n, spatial..., r], innermost
    axis first."""
    lengths = [int(length) for length in size[2:]]
    rank = len(lengths)
    if theta.shape != (int(size[0]), rank, rank + 1) or min(lengths) < 0:
        raise shape_error("AffineGrid", f"matrices of shape {theta.shape} do not fit the size {size.tolist()}")
    allowed((len(theta), *lengths, rank + 1), theta.itemsize, "AffineGrid")
    allowed((sum(lengths),), 16, "AffineGrid")
    axes = [_positions(length, bool(align_corners)) for length in lengths]
    points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(lengths)], -1).astype(theta.dtype)
    made = points.reshape(1, -1, rank + 1) @ theta.transpose(0, 2, 1)
    return made.reshape(len(theta), *lengths, rank)


def _positions(length: int, align_corners: bool) -> np.ndarray:
    if align_corners:
        return np.linspace(-1, 1, length) if length > 1 else np.full(length, -1.0)
    return (2 * np.arange(length) + 1) / max(length, 1) - 1
