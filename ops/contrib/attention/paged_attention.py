"""PagedAttention: attention of unpadded token batches over a paged KV cache (Kwon et al. 2023, arXiv:2309.06180)."""

from __future__ import annotations

import math

import numpy as np

from ....runtime.base.errors import UnsupportedError
from ....runtime.base.units import counted
from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...attention.scaled_dot_product import Scoring, attend
from ...rules.shape_rules import shape_error
from .heads import normalized, query_width, windowed
from .rotary_embedding import rotate_by_position

WHAT = "PagedAttention"


def _infer(node: Inference) -> None:
    q = node.shape(0)
    width = q[1] if q is not None and len(q) == 2 else None
    node.set(0, node.dtype(0), None if q is None else (q[0], query_width(node, width)))
    for index in (1, 2):
        node.set(index, node.dtype(index + 2), node.shape(index + 2))


ENDS, PASTS, PAGES = np.array([0, 3, 4], np.int32), np.array([2, 5], np.int32), np.array([[3, 0], [1, 2]], np.int32)


@op(
    "PagedAttention",
    MICROSOFT,
    types="T=half T T U=byte+half+f8_e4m3 U i32 i32 i32 T T i32 T T T f32 f32 i32 -> 3",
    infer=_infer,
    tolerance=Tolerance(1e-2, 1e-3),
    examples=[
        case(
            "f16[4,32]",
            "f16[4,16]",
            "f16[4,16]",
            "f16[4,4,2,8]",
            "f16[4,4,2,8]",
            ENDS,
            PASTS,
            PAGES,
            num_heads=4,
            kv_num_heads=2,
            outputs=3,
        ),
        case(
            "f16[4,64]",
            None,
            None,
            "f16[4,4,2,8]",
            "f16[4,4,2,8]",
            ENDS,
            PASTS,
            PAGES,
            "f16[9,4]",
            "f16[9,4]",
            num_heads=4,
            kv_num_heads=2,
            do_rotary=1,
            local_window_size=2,
            softcap=3.0,
            outputs=3,
        ),
    ],
)
def paged_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    key_cache: np.ndarray,
    value_cache: np.ndarray | None,
    cumulative_sequence_length: np.ndarray,
    past_seqlens: np.ndarray,
    block_table: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    slot_mapping: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    attention_metadata: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[tokens, heads x size] of tokens whose sequences end at `cumulative_sequence_length`, and the caches with the new
    keys and values.

    Caches are [pages, page size, key heads, size]; `block_table` [batch, pages] lists the pages of each sequence.
    Quantized caches and the latent layout raise UnsupportedError.
    """
    if (
        kv_cache_layout != "SEPARATE"
        or value_cache is None
        or {k_quant_type, v_quant_type} != {"NONE"}
        or rotary_offset
    ):
        why = f"PagedAttention with a cache of layout {kv_cache_layout}, quantized {k_quant_type} and {v_quant_type}"
        raise UnsupportedError("E-OP-PAGED", None, why, hint="Export the model with caches of 16 bits")
    size, groups = key_cache.shape[-1], kv_num_heads
    parts = (
        (query, key, value)
        if key is not None and value is not None
        else np.split(query, [num_heads * size, (num_heads + groups) * size], axis=1)
    )
    counts = (num_heads, groups, groups)
    if (
        key_cache.ndim != 4
        or key_cache.shape != value_cache.shape
        or key_cache.shape[2] != groups
        or min(counts) < 1
        or num_heads % groups
    ):
        raise shape_error(
            WHAT,
            f"caches of shapes {key_cache.shape} and {value_cache.shape} for {groups} key heads and {num_heads} query "
            "heads",
        )
    if any(part is None or part.shape != (len(query), count * size) for part, count in zip(parts, counts, strict=True)):
        raise shape_error(WHAT, f"queries of shape {query.shape} do not fit {num_heads} heads of {size}")
    q, k, v = (
        np.asarray(part, np.float32).reshape(len(query), count, size)
        for part, count in zip(parts, counts, strict=True)
        if part is not None
    )
    q, k = normalized(q, k, q_norm_weight, k_norm_weight, qk_norm_epsilon)
    keys, values, y = np.array(key_cache), np.array(value_cache), np.empty(q.shape, np.float32)
    sink = None if head_sink is None else head_sink.astype(np.float32)
    scoring = Scoring(scale or 1 / math.sqrt(max(size, 1)), softcap, sink=sink)
    for index, (start, stop, past) in enumerate(_sequences(cumulative_sequence_length, past_seqlens, len(query))):
        slots = _slots(block_table[index], past + stop - start, key_cache)
        rows, rotated = slice(start, stop), [part[None, start:stop].transpose(0, 2, 1, 3) for part in (q, k)]
        if do_rotary:
            cos, sin = (None if item is None else item.astype(np.float32) for item in (cos_cache, sin_cache))
            positions = past + np.arange(stop - start)[None]
            rotated = rotate_by_position(rotated, cos, sin, positions, rotary_interleaved, WHAT)
        written = slots[past:] if slot_mapping is None else slot_mapping[rows]
        if written.shape != (stop - start,) or written.max(initial=-1) >= keys.shape[0] * keys.shape[1]:
            raise shape_error(
                WHAT, f"slot_mapping of shape {written.shape} does not name slots for {counted(stop - start, 'token')}"
            )
        for cache, fresh in ((keys, rotated[1][0].transpose(1, 0, 2)), (values, v[rows])):
            cache.reshape(-1, *cache.shape[2:])[written[written >= 0]] = fresh[written >= 0].astype(cache.dtype)
        held = tuple(
            cache.reshape(-1, *cache.shape[2:])[slots].astype(np.float32).transpose(1, 0, 2)[None]
            for cache in (keys, values)
        )
        visibility = windowed(past, is_causal, local_window_size)
        part, _ = attend(rotated[0], held[0], held[1], scoring, visibility)
        y[rows] = part[0].transpose(1, 0, 2)
    return y.reshape(len(query), num_heads * size).astype(query.dtype), keys, values


def _sequences(ends: np.ndarray, pasts: np.ndarray, tokens: int) -> list[tuple[int, int, int]]:
    """First token, end, and length of the past of each sequence."""
    if (
        ends.ndim != 1
        or len(ends) != len(pasts) + 1
        or ends[0] != 0
        or ends[-1] != tokens
        or (np.diff(ends) < 0).any()
        or (pasts < 0).any()
    ):
        why = f"sequences that end at {ends.tolist()[:8]} with pasts {pasts.tolist()[:8]} do not fit {tokens} tokens"
        raise shape_error(WHAT, why)
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), pasts.tolist(), strict=True))


def _slots(pages: np.ndarray, count: int, cache: np.ndarray) -> np.ndarray:
    """Slots of the first `count` positions of a sequence, int64 [count]."""
    size = cache.shape[1]
    used = pages[: -(-count // max(size, 1))]
    if len(used) * size < count or (used.size and not 0 <= used.min() <= used.max() < len(cache)):
        raise shape_error(
            WHAT,
            f"{counted(count, 'position', verb='does')} not fit pages {pages.tolist()[:8]} of {len(cache)} of {size}",
        )
    slots: np.ndarray = (used[:, None].astype(np.int64) * size + np.arange(size)).reshape(-1)[:count]
    return slots
