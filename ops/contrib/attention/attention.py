"""Attention and QAttention: multi-head self-attention with its projection, as in BERT and GPT-2."""

from __future__ import annotations

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, Trait, case
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import F32, F64
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import shape_error
from .heads import added

ROTARY_BASE = 10000.0


def _infer(node: Inference) -> None:
    quantized = node.node.op is quantized_attention
    x, weight, past = node.shape(0), node.shape(1), node.shape(8 if quantized else 4)
    if x is not None and len(x) != 3:
        node.fail(f"the input has shape {x}, not (batch, length, size)")
    dtype = node.dtype(3 if quantized else 0)
    sizes, heads = node.attributes.get("qkv_hidden_sizes"), node.attributes["num_heads"]
    merged = weight[1] if weight is not None and len(weight) > 1 else None
    third = merged // 3 if isinstance(merged, int) else None
    node.set(0, dtype, None if x is None else (x[0], x[1], sizes[2] if sizes else third))
    shared = node.attributes.get("past_present_share_buffer")
    length = (
        None
        if x is None
        else x[1]
        if past is None and node.value(8 if quantized else 4) is None
        else None
        if past is None
        else (past[3] if shared else added(past[3], x[1]))
    )
    key = sizes[0] if sizes else third
    node.set(1, dtype, None if x is None else (2, x[0], heads, length, key // heads if isinstance(key, int) else None))


@dataclass(frozen=True)
class AttentionOptions:
    """Attributes of the operator `what`; `rotary_dim` elements of each head are rotated, 0 for none."""

    what: str
    num_heads: int
    unidirectional: int
    scale: float
    mask_filter_value: float
    rotary_dim: int


def self_attention(
    projected: Term,
    sizes: list[int],
    mask: Term | None,
    past: Term | None,
    bias: Term | None,
    filled: Term | None,
    options: AttentionOptions,
) -> tuple[Term, Term]:
    """From queries, keys and values side by side [batch, length, sum of sizes] to [batch, length, value size] and the
    present."""
    ends = [sum(sizes[: count + 1]) for count in range(3)]
    if ends[2] != projected.lengths[2] or sizes[0] != sizes[1]:
        raise shape_error(options.what, f"sizes {sizes} do not fit a projection to {projected.lengths[2]}")
    q, k, v = (projected.part(2, end - size, end) for end, size in zip(ends, sizes, strict=True))
    if options.rotary_dim:
        q, k = _rotated(q, k, past, filled, options)
    y, key, value, _ = q.calls(
        "MultiHeadAttention",
        k,
        v,
        None,
        mask,
        bias,
        *((None, None) if past is None else (past.entry(0, 0), past.entry(0, 1))),
        filled,
        domain=MICROSOFT,
        outputs=4,
        num_heads=options.num_heads,
        scale=options.scale,
        mask_filter_value=options.mask_filter_value,
        unidirectional=options.unidirectional,
    )
    return y, key.unsqueezed(0).concatenated(value.unsqueezed(0), axis=0) if sizes[0] == sizes[2] else key


def _rotated(q: Term, k: Term, past: Term | None, filled: Term | None, options: AttentionOptions) -> list[Term]:
    """Queries and keys rotated by their positions after the past, with the angles of the paper."""
    batch, length, _ = q.lengths
    size = options.rotary_dim
    places = q.constant(
        np.arange(length)[:, None] + (0 if past is None or filled is not None else past.lengths[3]), "f8"
    )
    if filled is not None:
        places = places + filled.cast(F64)
    angles = places * q.constant(ROTARY_BASE ** (-np.arange(0, size, 2) / size), "f8")
    caches = [
        angles.call(function).cast(q.dtype).call("Expand", q.integers([batch, length, size // 2]))
        for function in ("Cos", "Sin")
    ]
    return [
        part.call("RotaryEmbedding", *caches, num_heads=options.num_heads, rotary_embedding_dim=size) for part in (q, k)
    ]


@composed(
    "Attention",
    MICROSOFT,
    types="T=real T T i32 T T i32 -> 2",
    traits=(Trait.MIXES_POSITIONS,),
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3,8]", "f32[8,24]", "f32[24]", np.array([2, 3], np.int32), num_heads=2),
        case("f32[2,3,6]", "f32[6,24]", "f32[24]", None, "f32[2,2,2,4,4]", unidirectional=1, num_heads=2, outputs=2),
        case(
            "f32[2,3,6]",
            "f32[6,28]",
            "f32[28]",
            np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            num_heads=2,
            qkv_hidden_sizes=[8, 8, 12],
            scale=0.3,
        ),
        case("f32[1,2,8]", "f32[8,24]", "f32[24]", None, None, "f32[1,2,2,2]", num_heads=2),
    ],
)
def attention(
    x: Term,
    weights: Term,
    bias: Term | None = None,
    mask_index: Term | None = None,
    past: Term | None = None,
    attention_bias: Term | None = None,
    past_sequence_length: Term | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Term, Term]:
    """[batch, length, value size] from [batch, length, size], and keys and values [2, batch, heads, past + length, head
    size]."""
    if x.axes != 3 or weights.axes != 2:
        raise shape_error(
            "Attention", f"an input of shape {x.value.shape} and weights {weights.value.shape} do not fit"
        )
    projected = x.call("MatMul", weights)
    sizes = list(qkv_hidden_sizes or [weights.lengths[1] // 3] * 3)
    filled = past_sequence_length if past_present_share_buffer and past is not None else None
    rotary_dim = (rotary_embedding_dim or sizes[0] // num_heads) if do_rotary else 0
    options = AttentionOptions("Attention", num_heads, unidirectional, scale, mask_filter_value, rotary_dim)
    return self_attention(
        projected if bias is None else projected + bias, sizes, mask_index, past, attention_bias, filled, options
    )


@composed(
    "QAttention",
    MICROSOFT,
    types="T=byte U=byte V=f16+f32 V V i32 T U V -> 2",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case(
            "u8[2,3,8]",
            "i8[8,24]",
            "f32[24]",
            np.float32(0.02),
            np.float32(0.03),
            np.array([2, 3], np.int32),
            np.uint8(20),
            np.int8(2),
            num_heads=2,
        ),
        case(
            "u8[2,3,4]",
            "u8[4,24]",
            "f32[24]",
            np.float32(0.02),
            np.float32(0.03),
            None,
            np.uint8(20),
            np.uint8(19),
            "f32[2,2,2,5,4]",
            num_heads=2,
            unidirectional=1,
            outputs=2,
        ),
    ],
)
def quantized_attention(
    x: Term,
    weight: Term,
    bias: Term,
    input_scale: Term,
    weight_scale: Term,
    mask_index: Term | None = None,
    input_zero_point: Term | None = None,
    weight_zero_point: Term | None = None,
    past: Term | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Term, Term]:
    """Attention whose projection is a product of integers."""
    sums = x.call("MatMulInteger", weight, input_zero_point, weight_zero_point)
    projected = sums.cast(F32) * (input_scale * weight_scale).cast(F32) + bias.cast(F32)
    size = weight.lengths[1] // 3
    options = AttentionOptions(
        "QAttention", num_heads, unidirectional, scale, mask_filter_value, size // num_heads if do_rotary else 0
    )
    y, present = self_attention(
        projected, [size] * 3, mask_index, None if past is None else past.cast(F32), None, None, options
    )
    return y.cast(bias.dtype), present.cast(bias.dtype)
