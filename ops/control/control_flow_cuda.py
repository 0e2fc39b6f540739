"""Control flow on the device: the host reads conditions and trip counts; states and collected outputs stay on the
device."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import control_flow
from .if_else import if_
from .loop import loop
from .scan import scan

control_flow(if_, host_inputs=(0,))
control_flow(loop, host_inputs=(0, 1))
control_flow(scan)
