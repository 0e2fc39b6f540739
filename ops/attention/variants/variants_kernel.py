"""Native variants of attention, by the kernels of Attention and of packed sequences, and QuantizeBlocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...kernels.attention import q8_0_rows
from ...kernels.attention.flash_prefill import Grid
from ...kernels.attention.packed_sequences import PackedProblem, PackedTokens, attend_packed, scratch_nbytes
from ...kernels.gemm.register_tile import PANEL
from ..attention_kernel import MAX_DECODE_QUERIES, Heads, ScoreOptions, heads_of, heads_of_blocks, launch_attention
from .attention_with_sinks import attention_with_sinks
from .block_attention import LENGTH, block_attention, quantize_blocks
from .grid_attention import grid_attention
from .packed_attention import packed_attention

F32 = np.dtype(np.float32)


def _plain(buffer: Buffer) -> Heads | None:
    return heads_of(buffer, None)


def _tensors(step: Step, stored: Callable[[Buffer], Heads | None] = _plain) -> tuple[Heads, Heads, Heads, Heads] | None:
    """Queries, keys, values and output of rank 4, `stored` reads keys and values; None for others."""
    forms = (_plain, stored, stored, _plain)
    buffers = (*step.inputs[:3], step.output())
    q, k, v, y = (form(x) if x and len(x.shape) == 4 else None for form, x in zip(forms, buffers, strict=True))
    return None if q is None or k is None or v is None or y is None else (q, k, v, y)


def _scale(step: Step, size: int) -> float:
    scale: float | None = step.attributes["scale"]
    return float(scale if scale is not None else size**-0.5)


@native(attention_with_sinks)
def plan_attention_with_sinks(step: Step) -> Planned:
    """Plan four inputs of rank 4 with one sink per head."""
    tensors, (mask, sinks) = _tensors(step), step.inputs[3:]
    if tensors is None or mask is None or sinks is None or sinks.count != tensors[0].shape[1]:
        return None
    return launch_attention(step, *tensors, ScoreOptions(_scale(step, tensors[0].shape[3]), mask=mask, sink=sinks))


@native(quantize_blocks)
def plan_quantize_blocks(step: Step) -> Planned:
    """Plan whole blocks of f32."""
    x = step.inputs[0]
    if x is None or x.dtype != F32 or not x.shape or x.shape[-1] % LENGTH:
        return None
    blocks = x.count // LENGTH
    return Launch(q8_0_rows.quantize_blocks, step.parts(blocks, 4 * x.count), x=x, y=step.output(), blocks=blocks)


@native(block_attention)
def plan_block_attention(step: Step) -> Planned:
    """Plan f32 queries of rank 4 and whole blocks."""
    tensors, mask = _tensors(step, heads_of_blocks), [*step.inputs, None][3]
    if tensors is None or tensors[0].buffer.dtype != F32:
        return None
    scores = ScoreOptions(_scale(step, tensors[0].shape[3]), step.attributes["softcap"], mask=mask)
    return launch_attention(step, *tensors, scores)


@native(grid_attention)
def plan_grid_attention(step: Step) -> Planned:
    """Plan grids of f32 whose columns fill vectors: biases are added to blocks of scores. NumPy computes the rest."""
    tensors, grid = _tensors(step), Grid(step.attributes["rows"], step.attributes["columns"])
    if tensors is None or any(x.buffer.dtype != F32 for x in tensors):
        return None
    if not grid.fills_vectors or tensors[0].shape[2] <= MAX_DECODE_QUERIES:
        return None
    return launch_attention(step, *tensors, ScoreOptions(_scale(step, tensors[0].shape[3]), grid=grid))


@native(packed_attention)
def plan_packed_attention(step: Step) -> Planned:
    """Plan f32 inputs with i64 ends; NumPy computes the rest."""
    q, k, v, ends = step.inputs
    heads, groups = step.attributes["q_num_heads"], step.attributes["kv_num_heads"]
    if q is None or k is None or v is None or ends is None or ends.dtype != np.int64:
        return None
    fits = all(x.dtype == F32 and len(x.shape) == 3 and x.shape[:2] == (1, q.shape[1]) for x in (q, k, v))
    if not fits or heads < 1 or groups < 1 or heads % groups or any(x.shape[2] % groups for x in (k, v)):
        return None
    tokens, size, width = q.shape[1], k.shape[2] // groups, v.shape[2] // groups
    y = step.output()
    if q.shape[2] != heads * size or y.shape != (1, tokens, heads * width):
        return None
    parts = step.parts(heads * (ends.count + 1), tokens * min(tokens, 64) * heads * (size + width) / 8)
    nbytes = scratch_nbytes(tokens, size, width)
    return Launch(
        attend_packed,
        parts,
        rows=PackedTokens(q, 4 * q.shape[2], k, 4 * k.shape[2], v, 4 * v.shape[2], y, 4 * y.shape[2]),
        problem=PackedProblem(tokens, heads, groups, size, width, ends, ends.count, _scale(step, size)),
        zero=step.constant_buffer(np.zeros(PANEL, np.float32)),
        bailout=step.bailout,
        scratch=step.scratch(parts * nbytes),
        scratch_step=nbytes,
    )
