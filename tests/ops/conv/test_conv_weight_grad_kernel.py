"""The native derivative of convolutions by their kernel, against NumPy and torch."""

import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

CASES = {
    "3x3": ((5, 3, 8, 16), (40, 3, 3, 3), {"padding": 1}),
    "strides": ((2, 4, 9, 11), (6, 4, 3, 2), {"stride": 2, "dilation": (1, 2), "padding": (1, 0)}),
    "lines": ((3, 2, 40), (33, 2, 5), {"padding": 2}),
    "1x1": ((2, 19, 4, 4), (16, 19, 1, 1), {}),
    "cut": ((2, 3, 10, 10), (4, 3, 3, 3), {"stride": 4}),
}


def pair(value, axes):
    return [value] * axes if isinstance(value, int) else list(value)


@pytest.mark.parametrize("name", CASES)
def test_grads(name):
    shape, kernel, options = CASES[name]
    rng = np.random.default_rng(0)
    axes = len(shape) - 2
    x, w = (torch.tensor(rng.standard_normal(each), dtype=torch.float32) for each in (shape, kernel))
    w.requires_grad_()
    y = getattr(torch.nn.functional, f"conv{axes}d")(x, w, **options)
    grad = torch.tensor(rng.standard_normal(y.shape), dtype=torch.float32)
    y.backward(grad)
    given = {"stride": 1, "dilation": 1, "padding": 0} | options
    stride, dilation, padding = (pair(given[word], axes) for word in ("stride", "dilation", "padding"))
    example = case(
        x.numpy(), grad.numpy(), kernel_shape=list(kernel[2:]), begin=padding, strides=stride, dilations=dilation
    )
    (found,) = natively("ConvWeightGrad", example, domain="candle", rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-4, atol=1e-4)
