"""Gamma functions and inverse functions, and their gradients, are torch's."""

import candle_convert as cc
import numpy as np
import pytest
import torch

X = np.array([0.1, 0.5, 1.0, 2.0, 3.7, 10.0, 55.0])


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_functions(name, dtype):
    values = np.concatenate([X, [-0.5, -2.3]]) if name != "erfinv" else np.linspace(-0.999, 0.999, 9)
    tolerance = 1e-7 if dtype == np.float64 else 2e-5
    ours, theirs = (t.tensor(values.astype(dtype), requires_grad=True) for t in (cc, torch))
    results = [getattr(t, name)(x) for t, x in ((cc, ours), (torch, theirs))]
    for each in results:
        each.sum().backward()
    np.testing.assert_allclose(results[0].detach().numpy(), results[1].detach().numpy(), tolerance, tolerance)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), tolerance, tolerance)


def test_of_several_numbers():
    for order in range(4):
        found, expected = (t.polygamma(order, t.tensor(X)).numpy() for t in (cc, torch))
        np.testing.assert_allclose(found, expected, 1e-9)
    np.testing.assert_allclose(*(t.mvlgamma(t.tensor(X + 1), 3).numpy() for t in (cc, torch)), 1e-12)
    np.testing.assert_allclose(*(t.igamma(t.tensor(X), t.tensor(X[::-1].copy())).numpy() for t in (cc, torch)), 1e-12)


def test_second_derivative():
    x = cc.tensor(X, requires_grad=True)
    (first,) = cc.autograd.grad(cc.lgamma(x).sum(), x, create_graph=True)
    (second,) = cc.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), torch.polygamma(1, torch.tensor(X)).numpy(), 1e-9)


def test_edges():
    for name, values in (("lgamma", [0.0, -1.0, np.inf]), ("erfinv", [1.0, -1.0, 2.0, 0.0])):
        np.testing.assert_array_equal(*(getattr(t, name)(t.tensor(values)).numpy() for t in (cc, torch)))
    with pytest.raises(cc.UsageError, match="order"):
        cc.polygamma(-1, cc.ones(1))
