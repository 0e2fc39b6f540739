"""Native LookupBytes."""

from __future__ import annotations

from ...runtime.plan.kernel_api import Planned, Step, native
from ..kernels.byte_lookup import launch_lookup
from .lookup_bytes import lookup_bytes


@native(lookup_bytes)
def plan_lookup(step: Step) -> Planned:
    """Plan every table."""
    x, table = step.inputs
    if x is None or table is None:
        return None
    return launch_lookup(step, x, table, step.output(), 1, x.count, x.count)
