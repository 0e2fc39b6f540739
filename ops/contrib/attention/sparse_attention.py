"""SparseAttention: causal attention restricted to blocks of keys by a pattern per head (Phi-3-small,
arXiv:2404.14219)."""

from __future__ import annotations

import math

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...attention.scaled_dot_product import KeyVisibility, Scoring, attend
from ...rules.precision import widened
from ...rules.shape_rules import shape_error
from .group_query_attention import heads_of
from .heads import query_width
from .kv_cache_codec import rotate_by_position
from .rotary_embedding import joined

WHAT = "SparseAttention"


def _infer(node: Inference) -> None:
    q, past = node.shape(0), node.shape(3)
    node.set(0, node.dtype(0), None if q is None else (q[0], q[1], query_width(node, q[2])))
    for index in (1, 2):
        node.set(index, node.dtype(0), past)


ROWS, COLUMNS = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)


@op(
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
@widened
def sparse_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    past_key: np.ndarray,
    past_value: np.ndarray,
    block_row_indices: np.ndarray,
    block_col_indices: np.ndarray,
    total_sequence_length: np.ndarray,
    key_total_sequence_lengths: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    sparse_block_size: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[batch, length, heads x size], and the caches with the new keys and values. Patterns [layouts, blocks, blocks]
    are in compressed rows."""
    q, k, v = heads_of(query, key, value, num_heads, kv_num_heads, WHAT)
    batch, length = q.shape[0], q.shape[2]
    totals, longest = key_total_sequence_lengths.reshape(-1).astype(np.int64), int(total_sequence_length.reshape(-1)[0])
    starts = np.zeros(batch, np.int64) if longest == length else totals - length
    fits = (
        len(totals) == batch
        and starts.min(initial=0) >= 0
        and (starts.max(initial=0) + length) <= past_key.shape[2]
        and sparse_block_size > 0
    )
    if (
        not fits
        or past_key.shape[:2] != k.shape[:2]
        or past_key.shape != past_value.shape
        or past_key.shape[3] != k.shape[3]
    ):
        raise shape_error(
            WHAT, f"{totals.tolist()} keys do not fit caches of shape {past_key.shape} and {length} new ones"
        )
    if do_rotary:
        positions = starts[:, None] + np.arange(length)
        q, k = rotate_by_position((q, k), cos_cache, sin_cache, positions, rotary_interleaved, WHAT)
    seen = np.repeat(
        np.repeat(_pattern(block_row_indices, block_col_indices), sparse_block_size, 1), sparse_block_size, 2
    )
    keys, values = np.array(past_key), np.array(past_value)
    y = np.empty(q.shape, q.dtype)
    scoring = Scoring(scale or 1 / math.sqrt(max(q.shape[3], 1)))
    for index, start in enumerate(starts.tolist()):
        stop = start + length
        if stop > seen.shape[1]:
            raise shape_error(WHAT, f"{stop} keys where the pattern is for {seen.shape[1]}")
        keys[index, :, start:stop], values[index, :, start:stop] = k[index], v[index]
        mask = seen[np.arange(num_heads) % len(seen), start:stop, :stop][None]
        held = keys[index : index + 1, :, :stop], values[index : index + 1, :, :stop]
        part, _ = attend(q[index : index + 1], *held, scoring, KeyVisibility(np.array([start]), True), mask)
        y[index] = part[0]
    return joined(y), keys, values


def _pattern(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Blocks that are seen, [layouts, blocks, blocks]."""
    count = rows.shape[1] - 1
    seen = np.zeros((len(rows), count, count), bool)
    for layout, (ends, places) in enumerate(zip(rows, columns, strict=True)):
        used = places[: ends[-1]]
        if (
            (np.diff(ends) < 0).any()
            or ends[0] != 0
            or ends[-1] > len(places)
            or (used.size and not 0 <= used.min() <= used.max() < count)
        ):
            raise shape_error(WHAT, f"layout {layout} of the pattern names blocks that do not exist")
        seen[layout, np.repeat(np.arange(count), np.diff(ends)), used] = True
    return seen
