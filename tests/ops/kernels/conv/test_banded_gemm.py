"""Convolutions in bands of rows against torch: edges, strides, and rows a dilation apart, in both layouts."""

import numpy as np
import pytest
import torch
from candle_convert.ops.conv import conv_kernel, conv_nchwc_kernel
from candle_convert.ops.kernels.conv import banded_gemm
from candle_convert.runtime.ir.domain import CANDLE
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively
from torch.nn.functional import conv2d, pad

CASES = {
    "edges": ((2, 32, 23, 30), (40, 32, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1]),
    "strides": ((1, 16, 23, 40), (48, 16, 3, 3), [2, 2], [1, 1], [1, 0, 1, 2]),
    "rows apart": ((2, 32, 21, 30), (32, 32, 3, 3), [1, 1], [5, 2], [5, 2, 4, 1]),
    "more rows apart than there are": ((1, 16, 4, 40), (64, 16, 3, 1), [1, 1], [7, 1], [7, 0, 8, 0]),
    "strides and rows apart": ((1, 16, 30, 40), (32, 16, 3, 3), [2, 1], [3, 1], [3, 1, 3, 1]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("blocked", [False, True])
def test_convolutions(name, blocked, monkeypatch):
    shape, kernel, strides, dilations, pads = CASES[name]
    rng, plans, plan = np.random.default_rng(0), [], banded_gemm.plan_banded_gemm
    owner = conv_nchwc_kernel if blocked else conv_kernel
    monkeypatch.setattr(owner, "plan_banded_gemm", lambda problem: plans.append(plan(problem)) or plans[-1])
    for earlier in ("plan_winograd", "plan_channels_vectorized", "plan_direct_rows"):
        monkeypatch.setattr(owner, earlier, lambda problem: None, raising=False)
    x, w, b = (rng.standard_normal(each).astype(np.float32) for each in (shape, kernel, kernel[:1]))
    w /= np.sqrt(np.prod(kernel[1:]), dtype=np.float32)
    sides = [side for axis in (1, 0) for side in pads[axis::2]]
    padded = pad(torch.from_numpy(x), sides)
    expected = conv2d(padded, torch.from_numpy(w), torch.from_numpy(b), strides, 0, dilations)
    settings = {"strides": strides, "dilations": dilations, "pads": pads}
    if blocked:
        count, channels, *sizes = shape
        x = np.ascontiguousarray(x.reshape(count, channels // 16, 16, *sizes).transpose(0, 1, 3, 4, 2))
        settings |= {"blocks_in": 1}
    name, opset, domain = ("BlockedConv", None, CANDLE) if blocked else ("Conv", 22, "")
    (y,) = natively(name, Example((x, w, b), settings), opset, domain, rtol=1e-4, atol=1e-4, constant=[1, 2])
    assert plans
    assert all(plans)
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=1e-4)
