"""The native derivative of MaxPool against NumPy and torch."""

import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively


@pytest.mark.parametrize(("shape", "kernel"), [((2, 3, 8, 36), (2, 2)), ((1, 2, 9, 7), (2, 2)), ((2, 2, 7, 9), (3, 2))])
def test_grads(shape, kernel):
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.integers(0, 4, shape), dtype=torch.float32)  # some are equally large
    x[0, 0, 1, 1] = torch.nan
    x.requires_grad_()
    y = torch.nn.functional.max_pool2d(x, kernel)
    grad = torch.tensor(rng.standard_normal(y.shape), dtype=torch.float32)
    y.backward(grad)
    example = case(x.detach().numpy(), grad.numpy(), kernel_shape=list(kernel), strides=list(kernel))
    (found,) = natively("MaxPoolGrad", example, domain="candle")
    np.testing.assert_array_equal(found, x.grad.numpy())
