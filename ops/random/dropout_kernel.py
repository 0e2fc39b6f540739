"""Native Dropout at inference: the identity."""

from __future__ import annotations

from ...runtime.plan.kernel_api import Planned, Step, View, native
from .dropout import dropout


@native(dropout)
def plan_dropout(step: Step) -> Planned:
    """Plan inference without the mask output; NumPy computes the rest."""
    x = step.inputs[0]
    training = len(step.inputs) > 2 and step.inputs[2] is not None
    if training:
        told = step.constant(2)
        training = told is None or bool(told.item())
    return None if x is None or training or step.is_used(1) else View(x)
