"""Native BlockAttention, by the kernels of Attention, and QuantizeBlocks."""

from __future__ import annotations

import numpy as np

from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ..kernels.attention import q8_0_rows
from .attention_kernel import ScoreOptions, heads_of, heads_of_blocks, launch_attention
from .block_attention import LENGTH, block_attention, quantize_blocks

F32 = np.dtype(np.float32)


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
    q, k, v, mask = [*step.inputs, None][:4]
    if q is None or k is None or v is None or q.dtype != F32 or len(q.shape) != 4:
        return None
    queries, keys, values, y = heads_of(q, None), heads_of_blocks(k), heads_of_blocks(v), heads_of(step.output(), None)
    if queries is None or keys is None or values is None or y is None:
        return None
    scale, softcap = step.attributes["scale"], step.attributes["softcap"]
    scores = ScoreOptions(scale if scale is not None else queries.shape[3] ** -0.5, softcap, mask=mask)
    return launch_attention(step, queries, keys, values, y, scores)
