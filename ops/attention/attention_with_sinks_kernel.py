"""Native AttentionWithSinks, by the kernels of Attention."""

from __future__ import annotations

from ...runtime.plan.kernel_api import Planned, Step, native
from .attention_kernel import ScoreOptions, heads_of, launch_attention
from .attention_with_sinks import attention_with_sinks


@native(attention_with_sinks)
def plan_attention_with_sinks(step: Step) -> Planned:
    """Plan four inputs of rank 4 with one sink per head."""
    q, k, v, mask, sinks = step.inputs
    if (
        q is None
        or k is None
        or v is None
        or mask is None
        or sinks is None
        or not all(len(each.shape) == 4 for each in (q, k, v))
    ):
        return None
    queries, keys, values, y = (heads_of(each, None) for each in (q, k, v, step.output(0)))
    if queries is None or keys is None or values is None or y is None or sinks.count != queries.shape[1]:
        return None
    scale = step.attributes["scale"]
    return launch_attention(
        step,
        queries,
        keys,
        values,
        y,
        ScoreOptions(scale if scale is not None else queries.shape[3] ** -0.5, mask=mask, sink=sinks),
    )
