"""onnxruntime's RotaryEmbedding on the device."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.kernel.elementwise import Chain, elementwise_chain
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...attention.attention_cuda import in_heads, rotated
from .rotary_embedding import rotary_embedding


def _plus(x: float, other: float) -> float:
    return x + other


@cuda(rotary_embedding)
def rotary_on_device(step: Step) -> Planned:
    """Positions for each token, or one where every row starts."""
    x, positions, cos, sin = (step.input(index) for index in range(4))
    half = cos.shape[-1]
    heads = None if len(x.shape) == 4 else step.attributes["num_heads"] or x.shape[2] // (2 * half)
    one, two = in_heads(x, heads), in_heads(step.output(), heads)
    batch, length = one.shape[0], one.shape[2]
    launches: list[Launch | Chain] = []
    if positions.count == 1 and len(positions.shape) < 2:
        table = step.temporary(np.int64, (1, length))
        launches.append(
            elementwise_chain(
                _plus, [positions.view(()), step.held(np.arange(length))], table, compute=np.dtype(np.int64)
            )
        )
    elif positions.count == batch * length:
        table = positions.view((batch, length))
    else:
        return "its positions do not fit"
    return [*launches, *rotated(step, one, two, cos, sin, table, bool(step.attributes["interleaved"]), 2 * half)]
