"""Native RotaryEmbedding of onnxruntime, of f32, f16 and bf16."""

from __future__ import annotations

from ....runtime.plan.kernel_api import Planned, Step, native
from ...attention.attention_kernel import heads_of
from ...attention.rotary_embedding_kernel import launch_rotary
from .rotary_embedding import rotary_embedding


@native(rotary_embedding)
def plan_contrib_rotary(step: Step) -> Planned:
    """Plan every dtype but f64, which NumPy computes."""
    x, positions, cos, sin = step.inputs[:4]
    if x is None or cos is None or sin is None or positions is None or len(cos.shape) != 2 or len(x.shape) < 3:
        return None
    size = 2 * cos.shape[1]
    heads = heads_of(x, step.attributes["num_heads"] or x.shape[-1] // size)
    if heads is None or (positions.count == 1 and len(positions.shape) > 1 and heads.shape[0] * heads.shape[2] != 1):
        return None
    y = heads_of(step.output(), heads.shape[1])
    return (
        None
        if y is None
        else launch_rotary(step, heads, y, (cos, sin), positions, step.attributes["interleaved"], size)
    )
