"""Decomposition of Attention and RotaryEmbedding into operators of older opsets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..rules.expression import Term


@dataclass(frozen=True)
class AttentionAttributes:
    """Attributes of ONNX's Attention, by the names of its specification."""

    is_causal: int
    kv_num_heads: int | None
    left_window_size: int
    q_num_heads: int | None
    qk_matmul_output_mode: int
    right_window_size: int
    scale: float | None
    softcap: float
    softmax_precision: int | None


def attention_of_terms(
    q: Term,
    k: Term,
    v: Term,
    attn_mask: Term | None = None,
    past_key: Term | None = None,
    past_value: Term | None = None,
    nonpad_kv_seqlen: Term | None = None,
    **attributes: Any,
) -> Term | None:
    """The output alone, without a cache and windows and where sizes of heads are known; None for all else."""
    options = AttentionAttributes(**attributes)
    apart = (past_key, past_value, nonpad_kv_seqlen)
    if (
        any(item is not None for item in apart)
        or max(options.left_window_size, options.right_window_size) >= 0
        or q.value.dtype is None
    ):
        return None
    flat = q.rank == 3
    if flat:
        q, k, v = (
            _in_heads(x, heads)
            for x, heads in ((q, options.q_num_heads), (k, options.kv_num_heads), (v, options.kv_num_heads))
        )
    shapes = [x.value.shape for x in (q, k, v)]
    if any(shape is None or len(shape) != 4 for shape in shapes):
        return None
    heads, groups, size = (
        shape[axis]
        for shape, axis in zip((shapes[0], shapes[1], shapes[0]), (1, 1, 3), strict=True)
        if shape is not None
    )
    if (
        not isinstance(heads, int)
        or not isinstance(groups, int)
        or not isinstance(size, int)
        or not groups
        or heads % groups
    ):
        return None
    if heads != groups:
        k, v = (_repeated(x, groups, heads // groups) for x in (k, v))
    scale = options.scale if options.scale is not None else 1 / math.sqrt(max(size, 1))
    scores = q.call("MatMul", k.call("Transpose", perm=[0, 1, 3, 2])) * scale
    if options.softcap > 0:
        scores = (scores / options.softcap).call("Tanh") * options.softcap
    hidden = False
    for mask in (attn_mask, _causal(q, k) if options.is_causal else None):
        if mask is not None:
            hidden = True
            is_bool = mask.value.dtype is not None and mask.value.dtype.name == "bool"
            scores = mask.where(scores, -math.inf) if is_bool else scores + mask
    weights = _softmax(scores, options.softmax_precision, hidden)
    y = weights.call("MatMul", v)
    return _side_by_side(y, heads) if flat else y


def _softmax(scores: Term, precision: int | None, hidden: bool) -> Term:
    own = scores.value.dtype
    wide = precision is not None and own is not None and own.onnx != precision
    found = (scores.call("Cast", to=precision) if wide else scores).call("Softmax", axis=-1)
    if hidden:
        found = found.call("IsNaN").where(0.0, found)
    return found.call("Cast", to=own.onnx) if wide and own is not None else found


def _in_heads(x: Term, heads: int | None) -> Term:
    return x.call("Reshape", x.integers([0, 0, heads or 1, -1])).call("Transpose", perm=[0, 2, 1, 3])


def _side_by_side(y: Term, heads: int) -> Term:
    return y.call("Transpose", perm=[0, 2, 1, 3]).call("Reshape", y.integers([0, 0, -1]))


def _repeated(x: Term, groups: int, times: int) -> Term:
    """[batch, groups, length, size] with each head so many times in a row."""
    wide = x.call("Unsqueeze", x.integers([2])).call("Expand", x.integers([1, 1, times, 1, 1]))
    batch, rest = x.call("Shape", start=0, end=1), x.call("Shape", start=2)
    return wide.call("Reshape", batch.call("Concat", x.integers([groups * times]), rest, axis=0))


def _causal(q: Term, k: Term) -> Term:
    """[queries, keys], whether a key is not after the query."""
    shape = q.call("Shape", start=2, end=3).call("Concat", k.call("Shape", start=2, end=3), axis=0)
    return shape.call("ConstantOfShape", value=np.array([1], np.int64)).call("Trilu", upper=0).call("Cast", to=9)


def rotary_of_terms(
    x: Term,
    cos_cache: Term,
    sin_cache: Term,
    position_ids: Term | None = None,
    *,
    interleaved: int,
    num_heads: int,
    rotary_embedding_dim: int,
) -> Term | None:
    """The formula, where the size of a head is known; None where it is not."""
    width = (x.value.shape or (None,))[-1]
    if x.rank not in (3, 4) or not isinstance(width, int) or (x.rank == 3 and not num_heads):
        return None
    flat = x.rank == 3
    whole = width // num_heads if flat else width
    size = rotary_embedding_dim or whole
    heads = x.call("Reshape", x.integers([0, 0, num_heads, whole])) if flat else x
    tables = [
        table if position_ids is None else table.call("Gather", position_ids, axis=0)
        for table in (cos_cache, sin_cache)
    ]
    cos, sin = (table.call("Unsqueeze", x.integers([2 if flat else 1])) for table in tables)
    windows = ((0, size, 2), (1, size, 2)) if interleaved else ((0, size // 2, 1), (size // 2, size, 1))
    one, two = (_cut(heads, *window) for window in windows)
    first, second = one * cos - two * sin, one * sin + two * cos
    if interleaved:
        pair = first.call("Unsqueeze", x.integers([-1])).call(
            "Concat", second.call("Unsqueeze", x.integers([-1])), axis=-1
        )
        rotated = pair.call("Reshape", x.integers([0, 0, 0, size]))
        found = rotated.call("Concat", _cut(heads, size, whole, 1), axis=-1) if size < whole else rotated
    else:
        rest = [_cut(heads, size, whole, 1)] if size < whole else []
        found = first.call("Concat", second, *rest, axis=-1)
    return found.call("Reshape", x.integers([0, 0, width])) if flat else found


def _cut(x: Term, start: int, end: int, step: int) -> Term:
    return x.call("Slice", x.integers([start]), x.integers([end]), x.integers([3]), x.integers([step]))
