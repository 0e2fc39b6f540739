"""Convolutions by kernels that are no constants, of images whose rows are vectors or halves of them, against torch."""

import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

CASES = {
    "halves": ((3, 5, 8, 8), (13, 5, 3, 3), 1, [1, 1, 1, 1], True),
    "vectors": ((2, 3, 17, 15), (40, 3, 3, 3), 1, [1, 2, 0, 1], False),
    "dilations": ((1, 4, 6, 64), (7, 4, 3, 3), 2, [2, 2, 2, 2], True),
    "1x1": ((2, 4, 2, 32), (3, 4, 1, 1), 1, [0, 0, 0, 0], False),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name):
    shape, kernel, dilation, pads, biased = CASES[name]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(each).astype(np.float32) for each in (shape, kernel, kernel[:1])]
    inputs = given if biased else given[:2]
    example = case(*inputs, pads=pads, dilations=[dilation, dilation])
    (found,) = natively("Conv", example, rtol=1e-4, atol=1e-4)
    x, *others = map(torch.tensor, inputs)
    top, left, bottom, right = pads
    padded = torch.nn.functional.pad(x, (left, right, top, bottom))
    expected = torch.nn.functional.conv2d(padded, *others, dilation=dilation)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)
