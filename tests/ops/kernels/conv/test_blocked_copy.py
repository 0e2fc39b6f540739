"""Convolutions of a padded NCHW16c copy against torch: strides, edges, batches, one and two axes, rows that do not fill
blocks of 16."""

import numpy as np
import pytest
import torch
from candle_convert.ops.conv import conv_kernel
from candle_convert.ops.kernels.conv import blocked_copy
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively
from torch.nn.functional import pad

CASES = {
    "stride 2": ((1, 128, 21, 37), (160, 128, 3, 3), [2, 2], [1, 1, 1, 1]),
    "batch": ((2, 64, 9, 16), (144, 64, 3, 3), [2, 2], [0, 0, 1, 1]),
    "one axis": ((1, 64, 203), (256, 64, 3), [2], [2, 5]),
    "nothing but padding": ((1, 64, 3, 5), (192, 64, 3, 3), [2, 3], [7, 2, 1, 9]),
    "1 x 1": ((1, 128, 9, 14), (160, 128, 1, 1), [1, 1], [0, 0, 0, 0]),
    "deep": ((1, 256, 5, 9), (144, 256, 3, 3), [1, 1], [1, 1, 1, 1]),
    "rows that are left out": ((1, 64, 20, 40), (256, 64, 2, 2), [3, 2], [0, 0, 0, 0]),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name, monkeypatch):
    shape, kernel, strides, pads = CASES[name]
    rng, plans, plan = np.random.default_rng(0), [], blocked_copy.plan_blocked_copy
    monkeypatch.setattr(conv_kernel, "plan_blocked_copy", lambda problem: plans.append(plan(problem)) or plans[-1])
    monkeypatch.setattr(blocked_copy, "WIDE", False)
    for earlier in ("plan_winograd", "plan_banded_gemm", "plan_direct_rows"):
        monkeypatch.setattr(conv_kernel, earlier, lambda problem: None)
    x, w, b = (rng.standard_normal(each).astype(np.float32) for each in (shape, kernel, kernel[:1]))
    w /= np.sqrt(np.prod(kernel[1:]), dtype=np.float32)
    (y,) = natively(
        "Conv", Example((x, w, b), {"strides": strides, "pads": pads}), 22, rtol=1e-4, atol=1e-4, constant=[1, 2]
    )
    assert plans
    assert all(plans)
    axes = len(strides)
    padded = pad(torch.from_numpy(x), [side for axis in reversed(range(axes)) for side in pads[axis::axes]])
    function = torch.nn.functional.conv1d if axes == 1 else torch.nn.functional.conv2d
    expected = function(padded, torch.from_numpy(w), torch.from_numpy(b), strides)
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=1e-4)
