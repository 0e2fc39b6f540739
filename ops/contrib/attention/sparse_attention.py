"""SparseAttention: causal attention restricted to blocks of keys by a pattern per head (Phi-3-small,
arXiv:2404.14219), as a formula of RotaryEmbedding, TensorScatter and Attention."""

from __future__ import annotations

import itertools

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import F32, I64
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import shape_error
from .heads import joined_heads, query_width, split_heads

WHAT = "SparseAttention"


def _infer(node: Inference) -> None:
    q, past = node.shape(0), node.shape(3)
    node.set(0, node.dtype(0), None if q is None else (q[0], q[1], query_width(node, q[2])))
    for index in (1, 2):
        node.set(index, node.dtype(0), past)


ROWS, COLUMNS = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)


@composed(
    "SparseAttention",
    MICROSOFT,
    types="T=real T T T T i32 i32 i32 i32 T T -> 3",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case(
            "f32[1,20,32]",
            "f32[1,20,16]",
            "f32[1,20,16]",
            np.zeros((1, 2, 32, 8), np.float32),
            np.zeros((1, 2, 32, 8), np.float32),
            ROWS,
            COLUMNS,
            np.array([20], np.int32),
            np.array([20], np.int32),
            num_heads=4,
            kv_num_heads=2,
            sparse_block_size=16,
            outputs=3,
        )
    ],
)
def sparse_attention(
    query: Term,
    key: Term | None,
    value: Term | None,
    past_key: Term,
    past_value: Term,
    block_row_indices: Term,
    block_col_indices: Term,
    total_sequence_length: Term,
    key_total_sequence_lengths: Term,
    cos_cache: Term | None = None,
    sin_cache: Term | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    sparse_block_size: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
) -> tuple[Term, Term, Term]:
    """[batch, length, heads x size], and the caches with the new keys and values. Patterns [layouts, blocks, blocks]
    are in compressed rows."""
    layouts, blocks = block_row_indices.lengths[0], block_row_indices.lengths[1] - 1
    if min(num_heads, kv_num_heads, layouts, blocks, sparse_block_size) < 1 or num_heads % kv_num_heads:
        what = f"{num_heads} query heads, {kv_num_heads} key heads and {layouts} x {blocks} x {sparse_block_size} keys"
        raise shape_error(WHAT, f"{what} of a pattern do not fit together")
    if key is None or value is None:
        packed = split_heads(query, num_heads + 2 * kv_num_heads)
        ends = (0, num_heads, num_heads + kv_num_heads, num_heads + 2 * kv_num_heads)
        q, k, v = (packed.part(1, start, stop) for start, stop in itertools.pairwise(ends))
    else:
        q, k, v = split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    length, room = q.lengths[2], past_key.lengths[2]
    totals = key_total_sequence_lengths.cast(I64).reshaped(-1)
    is_first = total_sequence_length.cast(I64).reshaped(1).call("Equal", q.integers([length]))
    starts = is_first.where(0, totals - length)
    positions = starts.unsqueezed(1) + q.integers(list(range(length)))
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise shape_error(WHAT, "do_rotary needs cos_cache and sin_cache")
        rotary = {"interleaved": rotary_interleaved, "rotary_embedding_dim": 2 * cos_cache.lengths[1]}
        q, k = (part.call("RotaryEmbedding", cos_cache, sin_cache, positions, **rotary) for part in (q, k))
    keys, values = (cache.call("TensorScatter", new, starts, axis=2) for cache, new in ((past_key, k), (past_value, v)))
    pattern = _pattern(block_row_indices, block_col_indices)
    if layouts > 1:
        pattern = pattern.call("Gather", q.integers([head % layouts for head in range(num_heads)]), axis=0)
    seen = pattern.call("Gather", positions / sparse_block_size, axis=1).transposed([1, 0, 2, 3])
    column = np.minimum(np.arange(room) // sparse_block_size, blocks - 1)
    seen = seen.call("Gather", q.constant(column), axis=3)
    y = q.call("Attention", keys, values, seen, None, None, starts + length, is_causal=1, scale=scale or None)
    return joined_heads(y), keys, values


def _pattern(ends: Term, columns: Term) -> Term:
    """Blocks that are seen, bool [layouts, blocks, blocks], of a pattern in compressed rows."""
    blocks, entry = ends.lengths[1] - 1, ends.constant(np.arange(columns.lengths[1]), "int32")
    starts, stops = ends.part(1, 0, blocks).unsqueezed(2), ends.part(1, 1, blocks + 1).unsqueezed(2)
    in_row = (starts <= entry).call("And", entry < stops)
    used = entry < ends.part(1, blocks, blocks + 1)
    one_hot = ends.constant(np.eye(blocks), "float32").rows(used.where(columns, 0))
    return in_row.cast(F32).call("MatMul", one_hot) > 0
