"""Native convolution of channels in blocks of sixteen: in Winograd's squares or in panels, whose results then need not be turned."""

from __future__ import annotations

from ...runtime.launch import Planned, Step, native
from ..math.finish_kernel import finishing
from .blocked_conv import blocked_conv
from .panel_kernel import in_panels
from .problem_kernel import problem
from .winograd_kernel import in_squares


@native(blocked_conv)
def plan_blocked_conv(step: Step) -> Planned:
    """Of constant kernels."""
    found = problem(step)
    way = (in_squares(found) or in_panels(found)) if found is not None and found.constant else None
    if way is None:
        return None
    before, last = way
    return [*before, finishing(last, step.output(), 0)]
