"""Attention: softmax(scale * Q K^T + mask) V over heads, with a cache of earlier keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Tolerance, Trait, case, op
from ...runtime.ir.shape_inference import Inference, Shape
from ...runtime.tensor.dtype import BF16, BY_ONNX, F16, F32, F64
from ..elementwise.declare import quiet
from ..rules.expression import lowered
from ..rules.precision import is_narrow
from ..rules.shape_rules import shape_error
from .decomposition import attention_of_terms
from .scaled_dot_product import PROBABILITIES, KeyVisibility, Scoring, attend

UNDEFINED = "qk_matmul_output_mode is 0 to 3, and windows are -1 or more"
PRECISIONS = tuple(dtype.onnx for dtype in (F32, F16, F64, BF16))


def _infer(node: Inference) -> None:
    q, k, v, past = (node.shape(index) for index in (0, 1, 2, 4))
    heads, kv_heads = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    if any(shape is not None and len(shape) not in (3, 4) for shape in (q, k, v)):
        node.fail(f"queries, keys and values have shapes {q}, {k} and {v}; they are of rank 3 or 4")
    names = ("qk_matmul_output_mode", "left_window_size", "right_window_size")
    if not _are_defined(*(node.attributes[name] for name in names)):
        node.fail(UNDEFINED)
    if q is None or k is None or v is None:
        node.set(0, node.dtype(0), None)
        node.set(1, node.dtype(0), None)
        node.set(2, node.dtype(2), None)
        node.set(3, node.dtype(0), None)
        return
    if len(q) == 3 and not (heads and kv_heads):
        node.fail("inputs of rank 3 need q_num_heads and kv_num_heads")
    q4, k4, v4 = (_four(shape, count) for shape, count in ((q, heads), (k, kv_heads), (v, kv_heads)))
    total = k4[2] if node.value(4) is None else _sum(k4[2], past[2] if past is not None and len(past) == 4 else None)
    mask = node.shape(3)
    if mask and isinstance(mask[-1], int) and isinstance(total, int) and mask[-1] > max(1, total):
        node.fail(f"the mask has shape {mask}, for {counted(total, 'key')}")
    width = _product(heads, v4[3]) if len(q) == 3 else None
    node.set(0, node.dtype(0), (*q[:2], width) if len(q) == 3 else (*q4[:3], v4[3]))
    node.set(1, node.dtype(0), (*k4[:2], total, k4[3]))
    node.set(2, node.dtype(2), (*v4[:2], total, v4[3]))
    node.set(3, node.dtype(0), (*q4[:3], total))


def _are_defined(mode: int, left: int, right: int) -> bool:
    return 0 <= mode <= PROBABILITIES and min(left, right) >= -1


def _four(shape: Shape, heads: int | None) -> Shape:
    if len(shape) == 4:
        return shape
    width = shape[2]
    return (shape[0], heads, shape[1], width // heads if isinstance(width, int) and heads else None)


def _sum(one: Dim, other: Dim) -> Dim:
    return one + other if isinstance(one, int) and isinstance(other, int) else None


def _product(one: Dim, other: Dim) -> Dim:
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def in_heads(x: np.ndarray, heads: int | None, name: str) -> np.ndarray:
    """[batch, length, heads x size] as [batch, heads, length, size]; rank 4 as it is."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or x.shape[2] % heads:
        raise shape_error("Attention", f"{name} of shape {x.shape} does not split into {heads} heads")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def checked(q: np.ndarray, k: np.ndarray, v: np.ndarray, what: str) -> None:
    """FormatError unless queries, keys and values of rank 4 fit together."""
    alike = (
        q.ndim == k.ndim == v.ndim == 4
        and q.shape[0] == k.shape[0]
        and k.shape[:3] == v.shape[:3]
        and q.shape[3] == k.shape[3]
    )
    if not alike or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise shape_error(
            what, f"queries, keys and values of shapes {q.shape}, {k.shape} and {v.shape} do not fit together"
        )


def softmax_dtype(number: int | None, what: str) -> np.dtype[Any] | None:
    """The attribute `softmax_precision` as a dtype."""
    if number is None:
        return None
    if number not in PRECISIONS:
        raise shape_error(what, f"softmax_precision {number} is not a floating-point type")
    return np.dtype(BY_ONNX[number].as_numpy())


def working(q: np.ndarray, precision: np.dtype[Any] | None) -> type[np.floating[Any]]:
    """The dtype that products are computed in."""
    return np.float64 if np.float64 in (q.dtype, precision) else np.float32


@op(
    "Attention",
    since=25,
    types="T=float T U=float number+bool T U i64 -> 4",
    traits=(Trait.MIXES_POSITIONS, Trait.PRODUCT),
    infer=_infer,
    lower=lowered(attention_of_terms),
    tolerance=Tolerance(1e-5, 1e-5),
    examples=[
        case("f32[2,3,4,8]", "f32[2,3,6,8]", "f32[2,3,6,5]", outputs=3),
        case("f32[2,4,24]", "f32[2,6,8]", "f32[2,6,5]", "f32[4,6]", q_num_heads=3, kv_num_heads=1, scale=0.3),
        case(
            "f32[1,4,3,8]",
            "f32[1,2,3,8]",
            "f32[1,2,3,8]",
            "bool[1,1,3,8]",
            "f32[1,2,5,8]",
            "f32[1,2,5,8]",
            is_causal=1,
            outputs=3,
        ),
        case(
            "f32[2,2,3,4]",
            "f32[2,2,6,4]",
            "f32[2,2,6,4]",
            None,
            None,
            None,
            np.array([3, 5]),
            is_causal=1,
            left_window_size=2,
        ),
        case(
            "f32[1,2,5,4]",
            "f32[1,2,5,4]",
            "f32[1,2,5,4]",
            right_window_size=1,
            softcap=2.0,
            qk_matmul_output_mode=1,
            outputs=4,
        ),
        case(
            "f32[1,2,3,4]",
            "f32[1,2,5,4]",
            "f32[1,2,5,4]",
            "f32[2,3,5]",
            qk_matmul_output_mode=3,
            outputs=4,
            softmax_precision=1,
        ),
        case("f32[0,2,3,4]", "f32[0,2,5,4]", "f32[0,2,5,4]"),
    ],
)
@quiet
def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    call: Call,
) -> tuple[np.ndarray | None, ...]:
    """Outputs, keys and values with the past before them, and the scores at the stage `qk_matmul_output_mode`.

    Queries, keys and values are [batch, heads, length, size] or [batch, length, heads x size]; outputs have the form of
    the queries. Queries of more heads than keys share them. Products and the softmax are computed in f32 (f64 for f64),
    whatever the inputs are.
    """
    flat = q.ndim == 3
    q4, present_k, present_v = (
        in_heads(q, q_num_heads, "Q"),
        in_heads(k, kv_num_heads, "K"),
        in_heads(v, kv_num_heads, "V"),
    )
    if (past_key is None) != (past_value is None) or (past_key is not None and nonpad_kv_seqlen is not None):
        raise shape_error("Attention", "past_key and past_value are given together, and not with nonpad_kv_seqlen")
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        present_k, present_v = np.concatenate((past_key, present_k), 2), np.concatenate((past_value, present_v), 2)
    checked(q4, present_k, present_v, "Attention")
    if not _are_defined(qk_matmul_output_mode, left_window_size, right_window_size):
        raise shape_error("Attention", UNDEFINED)
    offset, length = np.array([past]), None
    if nonpad_kv_seqlen is not None:
        length = nonpad_kv_seqlen.reshape(-1).astype(np.int64)
        if len(length) != len(q4):
            raise shape_error(
                "Attention", f"nonpad_kv_seqlen has {counted(len(length), 'length')} for a batch of {len(q4)}"
            )
        offset = length - q4.shape[2]
    precision = softmax_dtype(softmax_precision, "Attention")
    work = working(q, precision)
    factor = scale if scale is not None else 1 / max(q4.shape[3], 1) ** 0.5
    capture = qk_matmul_output_mode if len(call.used_outputs) > 3 and call.used_outputs[3] else None
    mask = attn_mask.astype(work) if attn_mask is not None and is_narrow(attn_mask) else attn_mask
    y, scores = attend(
        q4.astype(work, copy=False),
        present_k.astype(work, copy=False),
        present_v.astype(work, copy=False),
        Scoring(factor, softcap, precision),
        KeyVisibility(offset, bool(is_causal), left_window_size, right_window_size, length),
        mask,
        capture,
    )
    y = y.transpose(0, 2, 1, 3).reshape(*q.shape[:2], y.shape[1] * y.shape[3]) if flat else y
    return (
        y.astype(q.dtype, copy=False),
        present_k,
        present_v,
        None if scores is None else scores.astype(q.dtype, copy=False),
    )
