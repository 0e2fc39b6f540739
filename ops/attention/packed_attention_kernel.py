"""Native PackedAttention of f32."""

from __future__ import annotations

import numpy as np

from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ..kernels.attention.packed_sequences import PackedProblem, PackedTokens, attend_packed, scratch_nbytes
from ..kernels.gemm.register_tile import PANEL
from .packed_attention import packed_attention

F32 = np.dtype(np.float32)


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
    scale = step.attributes["scale"]
    parts = step.parts(heads * (ends.count + 1), tokens * min(tokens, 64) * heads * (size + width) / 8)
    nbytes = scratch_nbytes(tokens, size, width)
    return Launch(
        attend_packed,
        parts,
        rows=PackedTokens(q, 4 * q.shape[2], k, 4 * k.shape[2], v, 4 * v.shape[2], y, 4 * y.shape[2]),
        problem=PackedProblem(
            tokens, heads, groups, size, width, ends, ends.count, scale if scale is not None else size**-0.5
        ),
        zero=step.constant_buffer(np.zeros(PANEL, np.float32)),
        bailout=step.bailout,
        scratch=step.scratch(parts * nbytes),
        scratch_step=nbytes,
    )
