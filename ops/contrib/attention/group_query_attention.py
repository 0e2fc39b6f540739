"""GroupQueryAttention: causal attention with fewer key heads than query heads, a KV cache, rotary embedding and a
window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.base.units import counted
from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.graph import Dim
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...attention.scaled_dot_product import BIASED, PROBABILITIES, Scoring, attend
from ...rules.output_limit import allowed
from ...rules.precision import widened_but_codes
from ...rules.shape_rules import shape_error
from .heads import normalized, windowed
from .kv_cache.codec import Codec, codec
from .rotary_embedding import joined, rotate_by_position, split

WHAT = "GroupQueryAttention"


def _infer(node: Inference) -> None:
    q, past, total = node.shape(0), node.shape(3), node.data(6)
    heads, groups = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    if q is not None and len(q) != 3:
        node.fail(f"queries have shape {q}, not (batch, length, size)")
    if q is None:
        node.set(0, node.dtype(0), None)
        return
    packed = node.value(1) is None
    size = q[2] // (heads + 2 * groups if packed else heads) if isinstance(q[2], int) else None
    node.set(0, node.dtype(0), (q[0], q[1], size * heads if size is not None else None))
    longest = total[0] if total else None
    length: Dim = longest if node.value(3) is None else None
    if past is not None and node.attributes["sliding_window_cache"]:
        length = past[2]
    elif past is not None and isinstance(past[2], int) and isinstance(longest, int):
        length = max(past[2], longest)
    width = past[3] if past is not None else size
    for index in (1, 2):
        node.set(index, node.dtype(3) if node.value(3) is not None else node.dtype(0), (q[0], groups, length, width))
    node.set(3, node.dtype(0), (q[0], heads, q[1], longest))


LENGTHS, TOTAL = np.array([4, 6], np.int32), np.array(7, np.int32)


@op(
    "GroupQueryAttention",
    MICROSOFT,
    types="T=real T T U=real+byte+f8_e4m3 U i32 i32 T T i64 T T f32 f32 T T i32 -> 4",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case(
            "f32[2,3,16]",
            "f32[2,3,8]",
            "f32[2,3,8]",
            None,
            None,
            np.array([2, 2], np.int32),
            np.array(3, np.int32),
            num_heads=4,
            kv_num_heads=2,
        ),
        case(
            "f32[2,1,32]",
            None,
            None,
            "f32[2,2,9,4]",
            "f32[2,2,9,4]",
            LENGTHS,
            TOTAL,
            "f32[9,2]",
            "f32[9,2]",
            num_heads=4,
            kv_num_heads=2,
            do_rotary=1,
            local_window_size=3,
            softcap=5.0,
        ),
        case(
            "f32[1,3,16]",
            "f32[1,3,4]",
            "f32[1,3,4]",
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
            num_heads=4,
            kv_num_heads=1,
            scale=0.3,
            smooth_softmax=1,
        ),
        case(
            "f32[2,1,32]",
            None,
            None,
            "f32[2,2,5,4]",
            "f32[2,2,5,4]",
            LENGTHS,
            TOTAL,
            num_heads=4,
            kv_num_heads=2,
            local_window_size=3,
            sliding_window_cache=1,
            outputs=3,
        ),
    ],
)
@widened_but_codes
def group_query_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    past_key: np.ndarray | None,
    past_value: np.ndarray | None,
    seqlens_k: np.ndarray,
    total_sequence_length: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Any, ...]:
    """[batch, length, heads x size], the cache with the new keys and values, and scores where `qk_output` asks for
    them.

    ``seqlens_k + 1`` keys count for each sequence. A first run has as many queries as `total_sequence_length`, later
    ones follow the past.
    """
    q, k, v = heads_of(query, key, value, num_heads, kv_num_heads, WHAT)
    batch, length, size = q.shape[0], q.shape[2], q.shape[3]
    totals, longest = seqlens_k.reshape(-1).astype(np.int64) + 1, int(total_sequence_length.reshape(-1)[0])
    first = longest == length
    starts = np.zeros(batch, np.int64) if first else totals - length
    if (
        len(totals) != batch
        or starts.min(initial=0) < 0
        or totals.max(initial=0) > longest
        or (past_key is None and not first)
    ):
        raise shape_error(WHAT, f"{totals.tolist()} keys of at most {longest} do not fit {batch} x {length} new ones")
    q, k = normalized(q, k, q_norm_weight, k_norm_weight, qk_norm_epsilon)
    if do_rotary:
        positions = _positions(position_ids, starts, length, first)
        q, k = rotate_by_position((q, k), cos_cache, sin_cache, positions, rotary_interleaved, WHAT)
    window = local_window_size if sliding_window_cache else 0
    pasts = [
        _Cache(past, new, codec(None if past is None else past.dtype, spread, kind, kv_cache_bit_width), window)
        for past, new, spread, kind in ((past_key, k, k_scale, k_quant_type), (past_value, v, v_scale, v_quant_type))
    ]
    presents = [cache.empty(longest) for cache in pasts]
    y = np.empty((batch, num_heads, length, size), q.dtype)
    asked = np.zeros(allowed((batch, num_heads, length, longest), q.itemsize, WHAT), q.dtype) if qk_output else None
    sink = (
        np.zeros(num_heads, q.dtype)
        if head_sink is None and smooth_softmax == 1
        else None
        if head_sink is None
        else head_sink.astype(q.dtype)
    )
    scoring = Scoring(scale or 1 / math.sqrt(max(size, 1)), softcap, sink=sink)
    for index in range(batch):
        start = int(starts[index])
        keys, values = (cache.extended(index, start, present) for cache, present in zip(pasts, presents, strict=True))
        before = keys.shape[1] - length
        visibility = windowed(before, causal, local_window_size)
        bias = (
            None
            if attention_bias is None
            else attention_bias[index % len(attention_bias)][None, ..., start - before : start + length]
        )
        capture = {1: BIASED, 2: PROBABILITIES}.get(qk_output)
        y[index], scores = (
            item if item is None else item[0]
            for item in attend(q[index : index + 1], keys[None], values[None], scoring, visibility, bias, capture)
        )
        if asked is not None and scores is not None:
            asked[index, :, :, start - before : start + length] = scores
    return joined(y), *presents, asked


def heads_of(
    query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, heads: int, groups: int, what: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values in heads, from one tensor or three."""
    if heads < 1 or groups < 1 or heads % groups:
        raise shape_error(what, f"{heads} query heads do not share {groups} key heads")
    if key is None or value is None:
        q, k, v = np.split(split(query, heads + 2 * groups, 0, what), [heads, heads + groups], axis=1)
        return q, k, v
    parts = split(query, heads, 0, what), split(key, groups, 0, what), split(value, groups, 0, what)
    if not parts[0].shape[2:] == parts[1].shape[2:] == parts[2].shape[2:]:
        raise shape_error(what, f"queries {query.shape}, keys {key.shape} and values {value.shape} do not fit together")
    return parts


def _positions(given: np.ndarray | None, starts: np.ndarray, length: int, first: bool) -> np.ndarray:
    """Positions [batch, length] of new tokens; of given ones a first run takes where they start."""
    if given is not None and not first:
        return given.reshape(len(starts), length)
    start = starts if given is None else np.full(len(starts), given.reshape(-1)[0])
    return start[:, None] + np.arange(length)


class _Cache:
    """Keys or values of the past, to which new ones [batch, heads, length, size] are added.

    Args:
        window: where the past holds the last positions only, how many of them are needed; 0 where it holds all.
    """

    def __init__(self, past: np.ndarray | None, new: np.ndarray, form: Codec, window: int) -> None:
        self.past, self.new, self.form, self.window = past, new, form, window
        fits = past is None or (
            past.ndim == 4 and past.shape[:2] == new.shape[:2] and form.size(past.shape[3]) >= new.shape[3]
        )
        if not fits or (window and (past is None or past.shape[2] < window)):
            raise shape_error(WHAT, f"a cache of shape {None if past is None else past.shape} does not fit {new.shape}")

    def empty(self, longest: int) -> np.ndarray:
        """The present, with the past in it."""
        if self.past is None:
            return np.zeros(
                allowed((*self.new.shape[:2], longest, self.new.shape[3]), self.new.itemsize, WHAT), self.new.dtype
            )
        if self.window:
            return np.zeros_like(self.past)
        extra = max(0, longest - self.past.shape[2])
        return np.pad(self.past, [(0, 0), (0, 0), (0, extra), (0, 0)])

    def resident(self, total: int) -> int:
        """Number of positions that a window-sized cache holds after `total` of them: whole runs are dropped at a
        time."""
        assert self.past is not None
        capacity = self.past.shape[2]
        run = capacity - self.window + 1
        return total if total <= capacity else total - run * -(-(total - capacity) // run)

    def extended(self, index: int, start: int, present: np.ndarray) -> np.ndarray:
        """All keys of one sequence [heads, keys, size] after `start` positions of the past; `present` is written to."""
        count = self.resident(start) if self.window else start
        fresh = self.form.encoded(self.new[index])
        if self.past is not None and count > self.past.shape[2]:
            raise shape_error(
                WHAT, f"{counted(count, 'position')} of the past where the cache holds {self.past.shape[2]}"
            )
        before = fresh[:, :0] if self.past is None else self.past[index][:, :count]
        stored = np.concatenate([before, fresh], 1)
        kept = stored[:, stored.shape[1] - self.resident(start + fresh.shape[1]) :] if self.window else stored
        present[index][:, : kept.shape[1]] = kept
        old = self.form.decoded(before, self.new.dtype, self.new.shape[3])
        return np.concatenate([old, self.form.decoded(fresh, self.new.dtype, self.new.shape[3])], 1)
