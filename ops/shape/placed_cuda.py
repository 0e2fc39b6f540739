"""Constants on the device: weights, which are uploaded once."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.launch import View
from .constant import constant


@cuda(constant)
def constant_on_device(step: Step) -> Planned:
    """What the node holds."""
    assert constant.compute is not None
    return View(step.held(np.asarray(constant.compute(**step.attributes))))
