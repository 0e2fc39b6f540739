"""MatMulExperts: each token's row times the weights of the experts that were chosen for it. Source: ggml's
ggml_mul_mat_id."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.weight_array import Blocks
from ..elementwise.declare import fitting, quiet
from ..gather.gather import checked
from ..rules.shape_rules import broadcast
from .linear import activated, decoded_rows


def _infer(node: Inference) -> None:
    x, weight, ids = node.shape(0), node.shape(1), node.shape(2)
    if weight is not None and len(weight) != 3:
        node.fail(f"its weight has {counted(len(weight), 'dim')}, not 3")
    if ids is None or x is None:
        node.set(0, node.dtype(0), None)
        return
    each = bool(node.attributes["each"])
    if not ids or len(x) != len(ids) + each:
        node.fail(f"rows of {counted(len(x), 'dim')} for choices of {counted(len(ids), 'dim')}, each={int(each)}")
    out, inner = weight[1:] if weight else (None, None)
    if isinstance(x[-1], int) and isinstance(inner, int) and x[-1] != inner:
        node.fail(f"rows of the first input have {x[-1]} elements, those of the weight {inner}")
    chosen = broadcast(x[:-1] if each else (*x[:-1], 1), ids)
    node.set(0, node.dtype(0), None if chosen is None else (*chosen, out))


def _lower(node: Node, build: Builder) -> None:
    x, weight, ids = node.inputs
    columns = build.add("Unsqueeze", [x, build.constant([-1] if node.attributes.get("each") else [-3, -1])])
    product = build.add("MatMul", [build.add("Gather", [weight, ids]), columns])
    build.add("Squeeze", [product, build.constant([-1])], outputs=node.outputs, name=node.name)


@op(
    "MatMulExperts",
    CANDLE,
    infer=_infer,
    lower=_lower,
    stored=True,
    examples=[
        case("f32[3,5]", "f32[4,2,5]", np.array([[0, 3], [1, 0], [3, 3]])),
        case("f32[3,2,5]", "f32[4,6,5]", np.array([[0, 3], [1, 0], [3, 2]], np.int32), each=1),
        case("f32[2,1,5]", "f32[4,6,5]", np.array([[[2]], [[1]]])),
        case("f32[0,5]", "f32[4,2,5]", np.zeros((0, 2), np.int64)),
    ],
)
@fitting("MatMulExperts")
@quiet
def matmul_experts(
    x: np.ndarray, weight: np.ndarray | Blocks, ids: np.ndarray, *, activations: str = "f32", each: int = 0
) -> np.ndarray:
    """``W[ids] x`` [tokens, k, out] for x [tokens, in], W [experts, out, in] and ids [tokens, k], in the dtype of x.

    With `each`, every expert has a row of its own: x [tokens, k, in]. Tokens may have several dims. `activations` as
    for Linear.
    """
    experts, out, inner = weight.shape
    checked("MatMulExperts", ids, experts)
    rows = x if each else x[..., None, :]
    rows = np.broadcast_to(rows, (*ids.shape, inner)).reshape(-1, inner)
    wide = activated(rows, activations)
    chosen = ids.reshape(-1) % experts
    y = np.empty((len(wide), out), wide.dtype)
    for expert in np.unique(chosen):
        places = np.flatnonzero(chosen == expert)
        y[places] = wide[places] @ decoded_rows(weight, int(expert), int(expert) + 1, wide.dtype)[0].T
    return y.reshape(*ids.shape, out).astype(x.dtype, copy=False)
