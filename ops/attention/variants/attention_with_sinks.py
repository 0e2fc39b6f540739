"""AttentionWithSinks: attention in which each head has one extra score (sink) that takes part in the softmax and has no
value.

Source: gpt-oss (OpenAI 2025, arXiv:2508.10925); as the inputs ``head_sink`` of onnxruntime's GroupQueryAttention.
"""

from __future__ import annotations

import numpy as np

from ....runtime.ir.builder import Builder
from ....runtime.ir.domain import CANDLE
from ....runtime.ir.graph import Node, Value
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...elementwise.declare import quiet
from ...rules.shape_rules import shape_error
from ..attention import checked
from ..scaled_dot_product import KeyVisibility, Scoring, attend


def _infer(node: Inference) -> None:
    q, v = node.shape(0), node.shape(2)
    node.set(0, node.dtype(0), None if q is None or v is None or len(q) != 4 or len(v) != 4 else (*q[:3], v[3]))


def _lower(node: Node, build: Builder) -> None:
    """A sink is the score of one more key, of zeros, whose value is zero."""
    q, k, v, mask, sinks = node.inputs

    def number(value: float) -> Value:
        return build.add("CastLike", [build.constant(value, "float32"), q])

    def lengths(x: Value | None, start: int, end: int) -> Value:
        return build.add("Shape", [x], {"start": start, "end": end})

    def longer(x: Value | None) -> Value:
        zeros = build.add(
            "Expand", [number(0.0), build.add("Concat", [lengths(x, 0, 2), one, lengths(x, 3, 4)], {"axis": 0})]
        )
        return build.add("Concat", [x, zeros], {"axis": 2})

    one = build.constant([1])
    scores = build.add("Where", [mask, number(0.0), number(-np.inf)])
    scores = build.add("Expand", [scores, build.add("Concat", [lengths(q, 0, 3), lengths(k, 2, 3)], {"axis": 0})])
    column = build.add("Reshape", [sinks, build.constant([1, -1, 1, 1])])
    column = build.add("Expand", [column, build.add("Concat", [lengths(q, 0, 3), one], {"axis": 0})])
    whole = build.add("Concat", [scores, column], {"axis": 3})
    given = {"scale": node.attributes["scale"]} if node.attributes.get("scale") else {}
    build.node("Attention", [q, longer(k), longer(v), whole], given, outputs=node.outputs, name=node.name)


@op(
    "AttentionWithSinks", CANDLE, infer=_infer, lower=_lower, tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[2,4,3,8]", "f32[2,2,6,8]", "f32[2,2,6,8]", "bool[2,1,3,6]", "f32[4]"),
        case("f32[1,2,1,8]", "f32[1,1,9,8]", "f32[1,1,9,4]", "bool[1,1,1,9]", "f32[2]", scale=0.3),
        case("f32[1,4,20,8]", "f32[1,2,40,8]", "f32[1,2,40,8]", "bool[1,1,20,40]", "f32[4]"),
    ],
)  # fmt: skip
@quiet
def attention_with_sinks(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, sinks: np.ndarray, *, scale: float | None = None
) -> np.ndarray:
    """[batch, heads, queries, value size] from queries [batch, heads, queries, size], keys and values [batch, key
    heads, keys, ...].

    Args:
        mask: booleans that broadcast to [batch, heads, queries, keys]; False hides a key.
        sinks: [heads].
    """
    checked(q, k, v, "AttentionWithSinks")
    if sinks.shape != q.shape[1:2]:
        raise shape_error("AttentionWithSinks", f"{sinks.shape} sinks do not match {q.shape[1]} heads")
    scoring = Scoring(scale if scale is not None else 1 / max(q.shape[3], 1) ** 0.5, sink=sinks.astype(q.dtype))
    return attend(q, k, v, scoring, KeyVisibility(np.array([0]), False, -1, -1, None), mask, None)[0].astype(
        q.dtype, copy=False
    )
