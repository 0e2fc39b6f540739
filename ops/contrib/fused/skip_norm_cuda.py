"""SimplifiedLayerNormalization on the device."""

from __future__ import annotations

from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...norm.norm_cuda import ROOT, _the_inverse, normalized, rooted, wide
from .skip_norm import simplified_layer_normalization


@cuda(simplified_layer_normalization)
def simplified_norm_on_device(step: Step) -> Planned:
    """The root of the mean square."""
    x, scale = step.input(0), step.input(1)
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    y = step.output() if step.is_used(0) else step.temporary(x.dtype, x.shape)
    statistics = [(_the_inverse, step.output(1))] if step.is_used(1) else []
    operands = {"x": x, "scale": scale}
    return normalized(
        x.shape, axes, operands, y, rooted, ROOT, wide(x.dtype), statistics, epsilon=step.attributes["epsilon"]
    )
