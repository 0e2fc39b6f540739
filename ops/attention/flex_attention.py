"""FlexAttention: attention whose scores and probabilities pass through subgraphs of the model (Dong et al. 2024,
arXiv:2412.05496)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...runtime.ir.call import Call
from ...runtime.ir.graph import Graph
from ...runtime.ir.op import Tolerance, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BY_ONNX, F32, F64
from ..elementwise.declare import quiet
from ..rules.shape_rules import shape_error
from .attention import PRECISIONS, checked, softmax_dtype, working
from .scaled_dot_product import KeyVisibility, Scoring, attend


def _infer(node: Inference) -> None:
    q, k, v = (node.shape(index) for index in range(3))
    if any(shape is not None and len(shape) != 4 for shape in (q, k, v)):
        node.fail(f"queries, keys and values have shapes {q}, {k} and {v}; all are of rank 4")
    number = node.attributes["softmax_precision"]
    if number is not None and number not in PRECISIONS:
        node.fail(f"softmax_precision {number} is not a floating-point type")
    dtype = node.dtype(0)
    scores = None if q is None else (*q[:3], k[2] if k is not None else None)
    for name in ("score_mod", "prob_mod"):
        if node.attributes[name] is not None:
            graph = node.subgraph(name)
            if len(graph.inputs) != 1 or len(graph.outputs) != 1:
                node.fail(f"{name} takes one tensor and gives one")
            graph.inputs[0].dtype = (
                BY_ONNX[number] if number is not None else F64 if dtype is F64 else F32 if dtype is not None else None
            )
            graph.inputs[0].shape = scores
            node.infer_subgraph(graph)
    node.set(0, dtype, None if q is None else (*q[:3], v[3] if v is not None else None))


@op(
    "FlexAttention",
    "ai.onnx.preview",
    since=1,
    types="T=float T T",
    infer=_infer,
    tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[2,4,3,8]", "f32[2,2,5,8]", "f32[2,2,5,6]"),
        case("f32[1,2,3,4]", "f32[1,2,5,4]", "f32[1,2,5,4]", scale=0.3, softmax_precision=1),
        case("f16[1,2,3,4]", "f16[1,2,5,4]", "f16[1,2,5,4]", softmax_precision=11),
        case("f32[0,2,3,4]", "f32[0,2,5,4]", "f32[0,2,5,4]"),
    ],
)
@quiet
def flex_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    prob_mod: Graph | None = None,
    scale: float | None = None,
    score_mod: Graph | None = None,
    softmax_precision: int | None = None,
    call: Call,
) -> np.ndarray:
    """Queries [batch, heads, queries, size] over keys and values [batch, key heads, keys, size], shared by heads in
    order.

    The subgraphs see all scores at once, [batch, heads, queries, keys], in the precision of the softmax: f32, or f64
    for f64 inputs, where it is not given.
    """
    checked(q, k, v, "FlexAttention")
    precision = softmax_dtype(softmax_precision, "FlexAttention") or np.dtype(
        np.float64 if q.dtype == np.float64 else np.float32
    )
    work = working(q, precision)

    def through(graph: Graph) -> Callable[[np.ndarray], np.ndarray]:
        def run(scores: np.ndarray) -> np.ndarray:
            (made,) = call.run(graph, [scores])
            if not isinstance(made, np.ndarray) or made.shape != scores.shape:
                why = f"a subgraph gives {getattr(made, 'shape', 'no tensor')} for scores of shape {scores.shape}"
                raise shape_error("FlexAttention", why)
            return made.astype(precision, copy=False)

        return run

    factor = scale if scale is not None else 1 / max(q.shape[3], 1) ** 0.5
    mods = [None if graph is None else through(graph) for graph in (score_mod, prob_mod)]
    scoring = Scoring(factor, precision=precision, score_mod=mods[0], prob_mod=mods[1])
    y, _ = attend(
        q.astype(work, copy=False),
        k.astype(work, copy=False),
        v.astype(work, copy=False),
        scoring,
        KeyVisibility(np.zeros(1, np.int64)),
    )
    return y.astype(v.dtype, copy=False)
