"""MultiHeadAttention: self- and cross-attention of projected queries, keys and values, with a past (Whisper, T5, Stable
Diffusion), as a formula of ONNX's Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.graph import Dim
from ....runtime.ir.op import Tolerance, Undecomposable, case
from ....runtime.ir.shape_inference import Inference, Shape
from ....runtime.tensor.dtype import F32, F64, I64
from ...attention.scaled_dot_product import PROBABILITIES
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import shape_error
from .heads import added, joined_heads, split_heads

WHAT = "MultiHeadAttention"


def _infer(node: Inference) -> None:
    q, k, v, past = (node.shape(index) for index in (0, 1, 2, 6))
    heads = node.attributes["num_heads"]
    if q is None or (node.value(1) is not None and k is None):
        node.set(0, node.dtype(0), None)
        return
    if len(q) not in (3, 5):
        node.fail(f"queries have shape {q}, not (batch, length, size) or (batch, length, heads, 3, size)")
    width, head, length = _widths(q, k, v, heads)
    node.set(0, node.dtype(0), (q[0], q[1], width))
    keys = (
        length
        if node.value(6) is None or (k is not None and len(k) == 4)
        else None
        if past is None
        else (past[2] if node.value(8) is not None else added(past[2], length))
    )
    size = width // heads if isinstance(width, int) else None
    node.set(1, node.dtype(0), (q[0], heads, keys, head))
    node.set(2, node.dtype(0), (q[0], heads, keys, size))
    node.set(3, node.dtype(0), (q[0], heads, q[1], keys))


def _widths(q: Shape, k: Shape | None, v: Shape | None, heads: int) -> Shape:
    """Output width, size of a key's head, and how many keys are new."""
    if len(q) == 5:
        return (q[2] * q[4] if isinstance(q[2], int) and isinstance(q[4], int) else None, q[4], q[1])
    head = q[2] // heads if isinstance(q[2], int) else None
    if k is not None and len(k) == 5:
        return (q[2], head, k[1])
    if v is not None and len(v) == 4:
        return (v[1] * v[3] if isinstance(v[1], int) and isinstance(v[3], int) else None, head, v[2])
    return (v[2] if v is not None and len(v) == 3 else q[2], head, k[1] if k is not None else q[1])


def projections(query: Term, key: Term | None, value: Term | None, bias: Term | None) -> tuple[Term, Term, Term]:
    """Queries [batch, length, heads x size], keys and values of one tensor, two or three, with their biases added. Keys
    and values of a kept past are in heads and have no bias."""
    if query.axes == 5:
        parts = [query.entry(3, part).reshaped(0, 0, -1) for part in range(3)]
    elif key is None:
        raise shape_error(WHAT, f"queries of shape {query.value.shape} have no keys")
    elif key.axes == 5:
        parts = [query, *(key.entry(3, part).reshaped(0, 0, -1) for part in range(2))]
    elif value is None:
        raise shape_error(WHAT, f"keys of shape {key.value.shape} have no values")
    else:
        parts = [query, key, value]
    if parts[0].axes != 3 or parts[1].axes not in (3, 4) or parts[1].axes != parts[2].axes:
        raise shape_error(WHAT, f"inputs of shapes {[part.value.shape for part in parts]} do not fit together")
    if bias is not None:
        start = 0
        for index, part in enumerate(parts if parts[1].axes == 3 else parts[:1]):
            width = (part.value.shape or ())[2]
            if not isinstance(width, int):
                raise Undecomposable(f"the width of {part.value.name!r} is unknown")
            parts[index] = part + bias.part(0, start, start + width)
            start += width
        if parts[1].axes == 3 and bias.lengths != [start]:
            raise shape_error(WHAT, f"a bias of shape {bias.value.shape} where ({start},) is needed")
    q, k, v = parts
    return q, k, v


def additive(mask: Term, batch: Dim, queries: Term, width: Term, end: Term, fill: float) -> Term:
    """A mask as numbers to add, 0 or `fill`, in a shape that broadcasts to [batch, heads, queries, width].

    Args:
        mask: lengths [batch] (more may follow them), ends and starts [2 x batch], or 1 where a key may be seen: [batch,
            keys], [batch, queries, keys], or [batch, 1, longest, longest] of which the rows of these queries are taken.
        queries: their number, [1].
        width: keys that the result is for, [1].
        end: position after the last query among the keys, [1].
    """
    shape = mask.value.shape or ()
    zero = mask.constant(0, "int32")
    if mask.axes == 1:
        starts = None
        if shape[0] != batch:
            if not isinstance(batch, int):
                raise Undecomposable("the batch size is unknown")
            if mask.lengths[0] not in (2 * batch, 3 * batch + 2):
                raise shape_error(WHAT, f"a mask of shape {shape} does not fit a batch of {batch}")
            starts = mask.part(0, batch, 2 * batch) if shape[0] == 2 * batch else None
            mask = mask.part(0, 0, batch)
        position = width.integers(0).call("Range", width.scalar, width.integers(1))
        seen = position < mask.cast(I64).unsqueezed(1, 2, 3)
        if starts is not None:
            seen = seen.call("And", position >= starts.cast(I64).unsqueezed(1, 2, 3))
    elif mask.axes == 2:
        pads = width.integers([0, 0, 0]).concatenated(width - mask.length(1), axis=0)
        seen = mask.call("Pad", pads).unsqueezed(1, 2) > zero
    elif mask.axes == 3:
        seen = mask.unsqueezed(1) > zero
    else:
        rows = mask.call("Slice", end - queries, end, width.integers([2]))
        seen = rows.call("Slice", width.integers([0]), width, width.integers([3])) > zero
    return seen.where(mask.constant(0, "float32"), mask.constant(fill, "float32"))


@composed(
    "MultiHeadAttention",
    MICROSOFT,
    types="T=real T T T i32 T T T i32 i32 -> 4",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3,8]", "f32[2,5,8]", "f32[2,5,12]", "f32[28]", num_heads=2),
        case(
            "f32[2,3,8]",
            "f32[2,3,8]",
            "f32[2,3,8]",
            None,
            np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]], np.int32),
            None,
            "f32[2,2,2,4]",
            "f32[2,2,2,4]",
            num_heads=2,
            outputs=3,
            scale=0.3,
        ),
        case("f32[2,3,2,3,4]", num_heads=2),
        case("f32[2,3,8]", "f32[2,5,2,2,4]", num_heads=2),
        case("f32[1,3,8]", "f32[1,2,5,4]", "f32[1,2,5,4]", None, None, "f32[1,2,3,5]", num_heads=2),
        case("f32[1,3,8]", "f32[1,3,8]", "f32[1,3,8]", "f32[24]", num_heads=2, unidirectional=1),
        case(
            "f32[2,1,8]",
            "f32[2,1,8]",
            "f32[2,1,8]",
            None,
            np.array([[1, 0, 1], [0, 1, 1]], np.int32),
            None,
            "f32[2,2,6,4]",
            "f32[2,2,6,4]",
            np.array([2], np.int32),
            num_heads=2,
            outputs=3,
        ),
    ],
)
def multi_head_attention(
    query: Term,
    key: Term | None = None,
    value: Term | None = None,
    bias: Term | None = None,
    key_padding_mask: Term | None = None,
    attention_bias: Term | None = None,
    past_key: Term | None = None,
    past_value: Term | None = None,
    past_sequence_length: Term | None = None,
    cache_indirection: Term | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Term, ...]:
    """[batch, length, value size], keys and values [batch, heads, keys, head size] with the past, and what values are
    weighted with.

    Queries, keys and values are [batch, length, heads x size]; all packed [batch, length, heads, 3, size]; keys and
    values packed [batch, length, heads, 2, size]; or keys and values in heads, which is cross-attention over a kept
    past. With `past_sequence_length` the past is a buffer of which so many positions are filled.
    """
    if cache_indirection is not None:
        raise shape_error(WHAT, "beams that share a past (cache_indirection) are not supported")
    q, k, v = projections(query, key, value, bias)
    past: tuple[Term | None, Term | None] = (past_key, past_value) if k.axes == 3 else (None, None)
    queries, filled, lengths = q.length(1), past_sequence_length, None
    options: dict[str, Any] = {
        "is_causal": unidirectional,
        "scale": scale or None,
        "qk_matmul_output_mode": PROBABILITIES,
    }
    if k.axes == 3 and (filled is None or past_key is None or past_value is None):
        end = width = k.length(1) if past_key is None else past_key.length(2) + k.length(1)
        options |= {"q_num_heads": num_heads, "kv_num_heads": num_heads}
    else:
        q, k, v = (part if part.axes == 4 else split_heads(part, num_heads) for part in (q, k, v))
        end = width = k.length(2)
        if past_key is not None and past_value is not None and filled is not None and past[0] is not None:
            starts = filled.cast(I64).reshaped(1)
            end, width, past = starts + k.length(2), past_key.length(2), (None, None)
            k, v = (
                buffer.call("TensorScatter", new, starts.call("Expand", q.length(0)), axis=2)
                for buffer, new in ((past_key, k), (past_value, v))
            )
            lengths = end.call("Expand", q.length(0))
            if attention_bias is not None and (attention_bias.value.shape or ())[-1:] != (1,):
                width = attention_bias.length(3)
    mask = attention_bias
    if key_padding_mask is not None:
        batch = (q.value.shape or (None,))[0]
        mask = additive(key_padding_mask, batch, queries, width, end, mask_filter_value)
        if attention_bias is not None:
            dtype = F64 if attention_bias.value.dtype is F64 else F32
            mask = mask.cast(dtype) + attention_bias.cast(dtype)
    y, keys, values, weights = q.calls("Attention", k, v, mask, *past, lengths, outputs=4, **options)
    return (y, keys, values, weights) if q.axes == 3 else (joined_heads(y), k, v, weights)
