"""The native step of Adam against its formula in NumPy."""

import numpy as np
import pytest
from candle_convert.ops.training.adam_step import NUMBERS
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively


@pytest.mark.parametrize("shape", [(3, 5), (70, 100)])
def test_steps(shape):
    rng = np.random.default_rng(1)
    value, grad, mean, square = (rng.standard_normal(shape).astype(np.float32) for _ in range(4))
    natively("AdamStep", case(value, grad, mean, square**2, *NUMBERS, outputs=3), domain="candle")
