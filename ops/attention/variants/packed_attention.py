"""PackedAttention: attention within each of several concatenated sequences, without padding.

Source: sequences by their cumulative lengths, as in FlashAttention (Dao et al. 2022, arXiv:2205.14135) and
onnxruntime's PackedMultiHeadAttention.
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
from ..attention import checked, in_heads
from ..scaled_dot_product import KeyVisibility, Scoring, attend


def _infer(node: Inference) -> None:
    q, v = node.shape(0), node.shape(2)
    heads, kv_heads = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    for shape in (q, node.shape(1), v):
        if shape is not None and (len(shape) != 3 or shape[0] not in (1, None)):
            node.fail(f"queries, keys and values have shape (1, tokens, heads x size), not {shape}")
    width = None if v is None or not isinstance(v[2], int) or not kv_heads else v[2] // kv_heads * heads
    node.set(0, node.dtype(0), None if q is None else (*q[:2], width))


def _lower(node: Node, build: Builder) -> None:
    """Attention with a mask: tokens see those before which as many sequences end."""
    q, k, v, ends = node.inputs
    one = build.constant(1)
    length = build.add("Squeeze", [build.add("Shape", [q], {"start": 1, "end": 2})])
    places = build.add("Range", [build.constant(0), length, one])
    rows = build.add("Unsqueeze", [places, build.constant([1])])
    ended = build.add("Cast", [build.add("LessOrEqual", [ends, rows])], {"to": 7})
    number = build.add("ReduceSum", [ended, build.constant([1])], {"keepdims": 1})
    mask = build.add("Equal", [number, build.add("Transpose", [number], {"perm": [1, 0]})])
    build.node("Attention", [q, k, v, mask], dict(node.attributes), outputs=node.outputs, name=node.name)


@op(
    "PackedAttention", CANDLE, infer=_infer, lower=_lower, tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[1,9,24]", "f32[1,9,24]", "f32[1,9,24]", np.array([4, 5, 9]), q_num_heads=3, kv_num_heads=3),
        case("f32[1,7,16]", "f32[1,7,8]", "f32[1,7,6]", np.array([3]), q_num_heads=4, kv_num_heads=2, scale=0.3),
        case("f32[1,40,64]", "f32[1,40,64]", "f32[1,40,64]", np.array([0, 33, 33]), q_num_heads=2, kv_num_heads=2),
    ],
)  # fmt: skip
@quiet
def packed_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    ends: np.ndarray,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float | None = None,
) -> np.ndarray:
    """[1, tokens, heads x value size] from queries [1, tokens, heads x size] and keys and values [1, tokens, KV heads x
    ...] in f32.

    Args:
        ends: i64 [sequences], ascending: the index after the last token of each sequence. Tokens after the last of
            them are one more sequence.
    """
    if q.ndim != 3 or q.shape[0] != 1 or k.shape[:2] != q.shape[:2] or v.shape[:2] != q.shape[:2]:
        raise shape_error("PackedAttention", f"{q.shape}, {k.shape} and {v.shape} are not one row of as many tokens")
    queries, keys, values = (
        in_heads(x, heads, name)
        for x, heads, name in ((q, q_num_heads, "Q"), (k, kv_num_heads, "K"), (v, kv_num_heads, "V"))
    )
    checked(queries, keys, values, "PackedAttention")
    scoring = Scoring(scale if scale is not None else 1 / max(queries.shape[3], 1) ** 0.5)
    tokens = q.shape[1]
    numbers = np.count_nonzero(ends.reshape(-1)[None] <= np.arange(tokens)[:, None], axis=1)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    y = np.empty((*queries.shape[:3], values.shape[3]), q.dtype)
    for start, stop in zip(starts, [*starts[1:], tokens], strict=True):
        one, two, three = (x[:, :, start:stop].astype(np.float32, copy=False) for x in (queries, keys, values))
        y[:, :, start:stop] = attend(one, two, three, scoring, KeyVisibility(np.array([0])))[0]
    return y.transpose(0, 2, 1, 3).reshape(1, tokens, -1)
