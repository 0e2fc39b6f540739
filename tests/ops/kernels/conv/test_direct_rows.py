"""Direct convolution along rows against torch: tiles of each height and width, strides, blocks of long rows, edges."""

import numpy as np
import pytest
import torch
from candle_convert.ops.conv import conv_kernel
from candle_convert.ops.kernels.conv import direct_rows
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively
from torch.nn.functional import pad

CASES = {
    "one output": ((2, 5, 23, 88), (1, 5, 7, 3), [1, 1], [1, 1], [3, 1, 3, 1], 1),
    "outputs of every tile": ((1, 2, 9, 131), (15, 2, 3, 5), [1, 1], [1, 1], [1, 2, 1, 2], 1),
    "three colours": ((1, 3, 61, 64), (32, 3, 3, 3), [2, 2], [1, 1], [1, 1, 1, 1], 1),
    "patches": ((1, 3, 68, 70), (17, 3, 4, 4), [4, 4], [1, 1], [0, 0, 0, 0], 1),
    "strides along one axis": ((1, 1, 20, 201), (6, 1, 7, 7), [1, 3], [1, 1], [3, 2, 3, 2], 1),
    "dilations": ((1, 4, 30, 90), (9, 4, 3, 3), [2, 2], [3, 5], [4, 9, 2, 3], 1),
    "rows apart": ((2, 3, 21, 50), (7, 3, 3, 3), [1, 2], [5, 2], [5, 2, 4, 1], 1),
    "more rows apart than there are": ((1, 2, 4, 40), (5, 2, 3, 1), [1, 1], [7, 1], [7, 0, 8, 0], 1),
    "groups": ((2, 6, 20, 50), (14, 3, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1], 2),
    "nothing but padding": ((1, 2, 4, 20), (3, 2, 3, 3), [1, 1], [1, 1], [5, 30, 6, 40], 1),
    "blocks of a row": ((1, 3, 5000), (5, 3, 11), [2], [2], [9, 12], 1),
    "kernels wider than rows": ((1, 1, 40), (4, 1, 36), [1], [1], [12, 12], 1),
    "1 x 1": ((1, 3, 7, 40), (8, 3, 1, 1), [1, 1], [1, 1], [0, 0, 0, 0], 1),
}


RULE = {
    (1, 8, 40, 120): {(8, 8, 3, 39): True, (1, 8, 5, 5): True, (32, 8, 1, 1): True},
    (1, 256, 9, 120): {(32, 256, 1, 7): False, (4, 256, 3, 3): True},
    (1, 32, 40, 6): {(32, 32, 3, 5): False},
}
"""Whether convolutions of inputs and kernels of these shapes are computed along rows, at every level."""


def planned(monkeypatch, example):
    """The node's result, and whether it was computed along rows."""
    plans, plan = [], direct_rows.plan_direct_rows
    monkeypatch.setattr(conv_kernel, "plan_direct_rows", lambda problem: plans.append(plan(problem)) or plans[-1])
    (y,) = natively("Conv", example, 22, rtol=1e-4, atol=1e-4, constant=[1, 2])
    return y, bool(plans) and all(plans)


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name, monkeypatch):
    shape, kernel, strides, dilations, pads, groups = CASES[name]
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(each).astype(np.float32) for each in (shape, kernel, kernel[:1]))
    example = Example((x, w, b), {"strides": strides, "dilations": dilations, "pads": pads, "group": groups})
    monkeypatch.setattr(direct_rows, "_is_faster", lambda problem: True)
    y, along_rows = planned(monkeypatch, example)
    assert along_rows
    axes = len(strides)
    padded = pad(torch.from_numpy(x), [side for axis in reversed(range(axes)) for side in pads[axis::axes]])
    function = torch.nn.functional.conv1d if axes == 1 else torch.nn.functional.conv2d
    expected = function(padded, torch.from_numpy(w), torch.from_numpy(b), strides, 0, dilations, groups)
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", RULE)
def test_the_rule(shape, monkeypatch):
    rng = np.random.default_rng(1)
    for kernel, expected in RULE[shape].items():
        x, w, b = (rng.standard_normal(each).astype(np.float32) for each in (shape, kernel, kernel[:1]))
        w /= np.sqrt(np.prod(kernel[1:]), dtype=np.float32)
        sides = [length // 2 for length in kernel[2:]] * 2
        assert planned(monkeypatch, Example((x, w, b), {"pads": sides}))[1] == expected, kernel
