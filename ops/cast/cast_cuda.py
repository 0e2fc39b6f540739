"""BitCast on the device: a view of the same bytes."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import View
from .cast import bit_cast


@cuda(bit_cast)
def bit_cast_on_device(step: Step) -> Planned:
    """Reinterpret the same bytes."""
    result = step.results[0]
    assert result is not None
    x = step.input(0)
    return View(x.view(x.shape, 0, np.dtype(result[0])))
