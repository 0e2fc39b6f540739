"""Native SimplifiedLayerNormalization, SkipLayerNormalization and SkipSimplifiedLayerNormalization."""

from __future__ import annotations

from ....runtime.plan.kernel_api import Planned, Step, native
from ...norm.norm_kernel import Normalization, normalize, over_last_axes
from .skip_norm import simplified_layer_normalization, skip_layer_normalization, skip_simplified_layer_normalization


@native(simplified_layer_normalization)
def plan_simplified(step: Step) -> Planned:
    """Plan RMS norm with the reciprocal root mean square as a second output."""
    return over_last_axes(step, centred=False, statistics=(None, 1))


@native(skip_layer_normalization, skip_simplified_layer_normalization)
def plan_skip(step: Step) -> Planned:
    """Plan residuals of the input's shape, or that repeat as a whole."""
    given = [*step.inputs, *[None] * (5 - len(step.inputs))]
    centred = step.node.op is skip_layer_normalization
    x, residual, scale = given[:3]
    shift, bias = (given[3], given[4]) if centred else (None, given[3])
    if x is None or residual is None or scale is None or not step.is_used(0) or (not centred and step.is_used(1)):
        return None
    tail = residual.shape[
        next((axis for axis, length in enumerate(residual.shape) if length != 1), len(residual.shape)) :
    ]
    if len(tail) > len(x.shape) or x.shape[len(x.shape) - len(tail) :] != tail or residual.count % x.shape[-1]:
        return None
    norm = Normalization(
        x.shape[-1],
        scale,
        shift,
        centred=centred,
        statistics=(1 if centred else None, 2),
        residual=residual,
        bias=bias,
        total=3,
    )
    return normalize(step, x, norm)
