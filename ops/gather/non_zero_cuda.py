"""NonZero and Compress on the device: elements are counted there; the host reads the count."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.kernel.stream_compaction import compaction_launches
from ...runtime.cuda.memory.dynamic_length import Sized
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument
from ..rules.axes import axis_in, input_error
from .non_zero import compress, non_zero


@cuda(non_zero, sized=True)
def non_zero_on_device(step: Step) -> Planned:
    """Write one row of indices per axis; how many there are follows from the data."""
    x = step.input(0)
    shape = x.shape or (1,)
    places = step.temporary(np.int64, (len(shape), x.count))
    lines = ["rest = j"]
    for axis in range(len(shape) - 1, -1, -1):
        lines += [f"places[{axis} * total + at] = rest % n{axis}", f"rest //= n{axis}"]
    named: dict[str, Argument] = {"x": x, "places": places, **{f"n{axis}": length for axis, length in enumerate(shape)}}
    launches, count = compaction_launches(
        step, "places that are not zero", x.count, named, "keep = get_x(x, j) != 0", "\n".join(lines)
    )
    step.sized[0] = Sized(places, count, lambda found: (len(shape), found))
    return launches


TAKEN = """
    length = chosen[0]
    if i < outer * length * inner:
        rest = i // inner
        y[i] = x[(rest // length * along + places[rest % length]) * inner + i % inner]
"""


@cuda(compress, sized=True)
def compress_on_device(step: Step) -> Planned:
    """Find the indices where the condition holds, then read these entries."""
    x, condition, axis = step.input(0), step.input(1), step.attributes["axis"]
    shape = (x.count,) if axis is None else x.shape
    at = 0 if axis is None else axis_in("Compress", axis, len(shape))
    if len(condition.shape) != 1 or condition.count > shape[at]:
        raise input_error(
            "Compress", "the condition is longer than the axis", expected=shape[at], found=condition.count
        )
    places = step.temporary(np.int64, (condition.count,))
    held = {"x": condition, "places": places}
    launches, count = compaction_launches(
        step, "places that are chosen", condition.count, held, "keep = get_x(x, j)", "places[at] = j"
    )
    most = (*shape[:at], condition.count, *shape[at + 1 :])
    y, outer, inner = step.temporary(x.dtype, most), math.prod(shape[:at]), math.prod(shape[at + 1 :])
    named: dict[str, Argument] = {
        "x": x,
        "y": y,
        "places": places,
        "chosen": count,
        "outer": outer,
        "along": shape[at],
        "inner": inner,
    }
    step.sized[0] = Sized(y, count, lambda found: (*shape[:at], found, *shape[at + 1 :]))
    return [*launches, per_thread_launch("entries that are chosen", y.count, named, TAKEN)]
