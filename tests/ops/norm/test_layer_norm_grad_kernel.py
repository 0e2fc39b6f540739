"""The native gradients of layer and RMS normalization, against torch."""

import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

SHAPES = {"rows": ((70, 48), -1), "tail": ((2, 5, 21), -1), "axes": ((3, 4, 2, 5), 2), "short": ((33, 3), 1)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("function", ["layer_norm", "rms_norm"])
def test_gradients(function, name):
    shape, axis = SHAPES[name]
    rng = np.random.default_rng(0)
    last = shape[axis:]
    x, w, b, grad = (
        torch.tensor(rng.standard_normal(each) + 1, dtype=torch.float64) for each in (shape, last, last, shape)
    )
    given = [each.requires_grad_() for each in ((x, w, b) if function == "layer_norm" else (x, w))]
    getattr(torch.nn.functional, function)(x, last, *given[1:], eps=1e-3).backward(grad)
    arrays = [each.detach().numpy().astype(np.float32) for each in (grad, x, w)]
    example = case(*arrays, axis=axis, epsilon=1e-3, outputs=len(given))
    operator = {"layer_norm": "LayerNormGrad", "rms_norm": "RMSNormGrad"}[function]
    found = natively(operator, example, domain="candle", rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(found, given, strict=True):
        np.testing.assert_allclose(mine, theirs.grad.numpy(), rtol=1e-5, atol=1e-5)
