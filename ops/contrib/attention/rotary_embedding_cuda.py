"""onnxruntime's RotaryEmbedding and MRotaryEmbedding on the device."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.kernel.elementwise import Chain, elementwise_chain
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda, decomposed
from ....runtime.tensor.dtype import I64
from ...attention.attention_cuda import in_heads, rotated
from ...rules.decompose_cuda import Form, forms, lengths
from .rotary_embedding import multimodal_rotary_embedding, rotary_embedding


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
                _plus, [positions.view(()), step.constant_buffer(np.arange(length))], table, compute=np.dtype(np.int64)
            )
        )
    elif positions.count == batch * length:
        table = positions.view((batch, length))
    else:
        return "unsupported shape of the positions"
    return [*launches, *rotated(step, one, two, cos, sin, table, bool(step.attributes["interleaved"]), 2 * half)]


@decomposed(multimodal_rotary_embedding)
@forms
def _multimodal_rotary(form: Form) -> None:
    """Angles of each axis of positions, in the sections that follow it, then the standard's rotation."""
    given, x, positions = form.attributes, form.input(0), form.cast(form.input(1), I64)
    sections, half = given["mrope_section"], lengths(form.input(2))[1]
    stream = np.repeat(np.arange(3), sections)
    if given["mrope_layout"]:
        stream = np.zeros(half, np.int64)
        for axis in (1, 2):
            stream[axis : 3 * sections[axis] : 3] = axis
    angles = []
    for cache in (form.input(2), form.input(3)):
        rows = cache.call("Gather", positions)
        time, height, width = (
            form.part(rows, 0, axis, axis + 1).call("Squeeze", form.constant([0])) for axis in range(3)
        )
        angles.append(
            form.constant(stream == 0, "bool").where(time, form.constant(stream == 1, "bool").where(height, width))
        )
    heads = 0 if len(lengths(x)) == 4 else given["num_heads"] or lengths(x)[2] // (2 * half)
    form.give(
        0,
        x.call(
            "RotaryEmbedding", *angles, interleaved=given["interleaved"], num_heads=heads, rotary_embedding_dim=2 * half
        ),
    )
