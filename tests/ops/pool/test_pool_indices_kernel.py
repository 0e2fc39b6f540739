"""Places of the largest elements against NumPy, and gradients of a small network of convolutions against torch."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tensors.core.expression import apply, op_named
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [2, 3], "dilations": [2, 1], "ceil_mode": 1, "strides": [2, 2]},
    ],
)
def test_places(options):
    x = RNG.integers(0, 9, (3, 4, 11, 13)).astype(np.float32)
    x[0, 0, 3, 4] = np.nan
    natively("MaxPool", case(x, outputs=2, **options))
    natively("MaxPool", case(x[0], outputs=2, kernel_shape=[3], strides=[2], pads=[1, 1]))


@pytest.mark.parametrize(("stride", "padding", "groups"), [(1, 1, 1), (1, 0, 2), (1, 3, 1), (2, 1, 1)])
def test_gradients(stride, padding, groups):
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in ((2, 4, 12, 10), (6, 4 // groups, 3, 3), (6,))]
    found = []
    for m in (cc, torch):
        x, w, b = given = [m.tensor(each, requires_grad=True) for each in arrays]

        def step(m=m, x=x, w=w, b=b):
            if m is cc:
                inputs = [each.expression for each in (x, w, b)]
                options = {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups}
                y = apply(op_named("Conv"), inputs, options)
                y = cc.Tensor(apply(op_named("MaxPool"), [y], {"kernel_shape": [2, 2], "strides": [1, 2]}))
            else:
                y = torch.conv2d(x, w, b, stride, padding, 1, groups)
                y = torch.nn.functional.max_pool2d(y, 2, (1, 2))
            y.sin().sum().backward()

        (cc.jit(step) if m is cc else step)()
        found.append([each.grad.numpy() for each in given])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
