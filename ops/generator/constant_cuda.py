"""Constant on the device: a weight that is uploaded once."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import View
from .constant import constant


@cuda(constant)
def constant_on_device(step: Step) -> Planned:
    """Copy the constant of the node to the device."""
    assert constant.compute is not None
    return View(step.constant_buffer(np.asarray(constant.compute(**step.attributes))))
