"""Layers and losses, each against torch's of the same name: text, initial values, results, gradients, buffers, in
training and evaluation."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.builders.torch_layers import LAYERS, LOSSES

CASES = [
    pytest.param(name, row, id=f"{name}-{place}")
    for table in (LAYERS, LOSSES)
    for name, rows in table.items()
    for place, row in enumerate(rows)
]


def converted(m, item):
    """Arrays in options as tensors of one of the two packages."""
    return m.tensor(item) if isinstance(item, np.ndarray) else item


def made(m, name, row):
    arguments, options, _ = row
    m.manual_seed(5)
    return getattr(m.nn, name)(*arguments, **{key: converted(m, item) for key, item in options.items()})


def run(m, layer, arrays, slope):
    """Result and gradients by inputs and parameters."""
    inputs = [m.tensor(each, requires_grad=each.dtype.kind == "f") for each in arrays]
    for each in layer.parameters():
        each.grad = None
    result = layer(*inputs)
    grads = {}
    if result.requires_grad:
        weight = m.tensor(np.resize(slope, result.shape).astype(np.float32))
        (result * weight).sum().backward()
        grads = {f"input {n}": each.grad for n, each in enumerate(inputs)}
        grads |= {each: parameter.grad for each, parameter in layer.named_parameters()}
    return result.detach().numpy(), {each: grad.numpy() for each, grad in grads.items() if grad is not None}


def compare(ours, theirs, arrays):
    slope = np.random.default_rng(1).standard_normal(1013)
    found, expected = run(cc, ours, arrays, slope), run(torch, theirs, arrays, slope)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, grad in expected[1].items():
        np.testing.assert_allclose(found[1][name], grad, rtol=1e-5, atol=2e-5, err_msg=name)
    for (name, one), (_, other) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("name", "row"), CASES)
def test_against_torch(name, row):
    rng = np.random.default_rng(0)
    arrays = [each(rng) for each in row[2]]
    ours, theirs = made(cc, name, row), made(torch, name, row)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for (key, one), (_, other) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6, atol=1e-6, err_msg=key)
    rng = np.random.default_rng(7)
    state = {
        key: torch.tensor(rng.random(each.shape)).to(each.dtype) if each.is_floating_point() else each
        for key, each in theirs.state_dict().items()
    }
    theirs.load_state_dict(state)
    ours.load_state_dict(state)
    for _ in range(2):
        compare(ours, theirs, arrays)
    ours.eval()
    theirs.eval()
    compare(ours, theirs, arrays)
