"""Native GridAttention of f32, whose biases are added to blocks of scores."""

from __future__ import annotations

import numpy as np

from ...runtime.plan.kernel_api import Planned, Step, native
from ..kernels.attention.flash_prefill import Grid
from .attention_kernel import MAX_DECODE_QUERIES, ScoreOptions, heads_of, launch_attention
from .grid_attention import grid_attention


@native(grid_attention)
def plan_grid_attention(step: Step) -> Planned:
    """Plan grids whose columns fill vectors; NumPy computes the rest."""
    tensors = [heads_of(buffer, None) for buffer in (*step.inputs, step.output()) if buffer is not None]
    q, k, v, y = tensors if len(tensors) == 4 else [None] * 4
    if q is None or k is None or v is None or y is None or any(x.buffer.dtype != np.float32 for x in (q, k, v, y)):
        return None
    grid = Grid(step.attributes["rows"], step.attributes["columns"])
    if not grid.fills_vectors or q.shape[2] <= MAX_DECODE_QUERIES:
        return None
    return launch_attention(step, q, k, v, y, ScoreOptions(float(step.attributes["scale"]), grid=grid))
