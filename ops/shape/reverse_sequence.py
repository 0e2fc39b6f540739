"""ReverseSequence: the first steps of each batch entry, reversed."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ..rules.axes import input_error, matrices


@op(
    "ReverseSequence",
    since=28,
    types="tensor i64",
    infer=matrices,
    examples=[
        case("f32[4,3]", np.array([4, 1, 2])),
        case("f32[2,4,3]", np.array([0, 3]), batch_axis=0, time_axis=1),
        case("string[2,2]", np.array([2, 1])),
        case("f32[0,3]", np.array([0, 0, 0])),
    ],
)
def reverse_sequence(x: np.ndarray, lengths: np.ndarray, *, batch_axis: int = 1, time_axis: int = 0) -> np.ndarray:
    """The first ``lengths[b]`` steps of each entry `b` reversed; one of the two axes is 0, the other 1."""
    if x.ndim < 2 or sorted((batch_axis, time_axis)) != [0, 1]:
        raise input_error(
            "ReverseSequence", "batch and time are not the first two axes", "E-OP-AXIS", found=(batch_axis, time_axis)
        )
    steps = x.shape[time_axis]
    if lengths.shape != (x.shape[batch_axis],) or (
        lengths.size and not (lengths.min() >= 0 and lengths.max() <= steps)
    ):
        raise input_error(
            "ReverseSequence",
            "the lengths do not fit",
            expected=f"{x.shape[batch_axis]} of at most {steps}",
            found=lengths.tolist(),
        )
    step, length = np.arange(steps)[:, None], lengths.reshape(1, -1)
    source = np.where(step < length, length - 1 - step, step)
    entries = np.arange(lengths.size)
    return np.asarray(x[source, entries] if time_axis == 0 else x[entries[:, None], source.T])
