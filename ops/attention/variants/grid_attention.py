"""GridAttention: attention whose scores have a bias for the row and one for the column of each key in a grid.

Source: decomposed relative positions (Li et al. 2022, arXiv:2112.01526), as in Segment Anything.
"""

from __future__ import annotations

import numpy as np

from ....runtime.ir.builder import Builder
from ....runtime.ir.domain import CANDLE
from ....runtime.ir.graph import Node
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...elementwise.declare import quiet
from ...rules.shape_rules import shape_error
from ..scaled_dot_product import KeyVisibility, Scoring, attend


def positions(rows: int, columns: int) -> np.ndarray:
    """The row and the column of each key as one-hot f32 [1, 1, rows x columns, rows + columns]."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    found: np.ndarray = np.concatenate([np.eye(rows, dtype="f")[row], np.eye(columns, dtype="f")[column]], 1)[
        None, None
    ]
    return found


def _infer(node: Inference) -> None:
    q, v = node.shape(0), node.shape(2)
    node.set(0, node.dtype(0), None if q is None else (*q[:3], None if v is None else v[3]))


def _lower(node: Node, build: Builder) -> None:
    """Attention with keys with their row and column appended as one-hot vectors."""
    q, k, v = node.inputs
    rows, columns, scale = (node.attributes[name] for name in ("rows", "columns", "scale"))
    lengths = build.add("Shape", [k], {"start": 0, "end": 2})
    shape = build.add("Concat", [lengths, build.constant([rows * columns, rows + columns])], {"axis": 0})
    behind = build.add("Expand", [build.constant(positions(rows, columns)), shape])
    keys = build.add("Concat", [k, behind], {"axis": 3})
    build.node("Attention", [q, keys, v], {"scale": scale}, outputs=node.outputs, name=node.name)


@op(
    "GridAttention", CANDLE, infer=_infer, lower=_lower, tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[2,3,12,15]", "f32[2,3,12,8]", "f32[2,3,12,5]", rows=3, columns=4, scale=0.3),
        case("f32[1,2,160,36]", "f32[1,2,160,10]", "f32[1,2,160,32]", rows=10, columns=16, scale=1.0),
        case("f32[1,1,320,66]", "f32[1,1,320,24]", "f32[1,1,320,40]", rows=10, columns=32, scale=0.2),
    ],
)  # fmt: skip
@quiet
def grid_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, rows: int, columns: int, scale: float) -> np.ndarray:
    """[batch, heads, queries, value size] from queries [batch, heads, queries, size + rows + columns], after whose
    elements the biases of rows and columns stand, keys [batch, heads, rows x columns, size] and values."""
    keys = rows * columns
    fits = q.ndim == k.ndim == v.ndim == 4 and k.shape[:3] == v.shape[:3] == (*q.shape[:2], keys)
    if not fits or q.shape[3] != k.shape[3] + rows + columns:
        raise shape_error("GridAttention", f"{q.shape}, {k.shape} and {v.shape} do not match {rows} x {columns} keys")
    behind = np.broadcast_to(positions(rows, columns).astype(k.dtype), (*k.shape[:3], rows + columns))
    whole = np.concatenate([k, behind], 3)
    return np.asarray(attend(q, whole, v, Scoring(scale), KeyVisibility(np.array([0])))[0])
