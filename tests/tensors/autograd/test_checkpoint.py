"""checkpoint: values and gradients are torch's, and what lies between is not kept."""

import tracemalloc

import candle_convert as cc
import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint


def results(m, second):
    """A loss of a checkpointed function that has several arguments and results and reads a weight from outside."""
    rng = np.random.default_rng(0)
    w = m.tensor(rng.standard_normal((4, 4))).requires_grad_()
    x = m.tensor(rng.standard_normal((3, 4))).requires_grad_()

    def f(x, options):
        h = (x @ w).tanh()
        return (h * h @ w).sin() * options["scale"], h

    options = {"scale": 2.0}
    if m is torch:
        y, h = torch_checkpoint(f, x, options, use_reentrant=False)
    else:
        y, h = cc.checkpoint(f, x, options)
    loss = (y * y).sum() + h.sum()
    if second:
        gradients = torch.autograd.grad if m is torch else cc.gradients
        loss = sum((each * each).sum() for each in gradients(loss, [x, w], create_graph=True))
    loss.backward()
    return loss.detach().numpy(), x.grad.numpy(), w.grad.numpy()


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_as_torch(second):
    for one, other in zip(results(torch, second), results(cc, second), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)


def blocks(x, w, call):
    for _ in range(3):
        x = call(lambda x: ((x @ w).tanh() @ w).sigmoid(), x)
    return (x * x).sum()


@pytest.mark.parametrize("wrap", [lambda f: f, cc.jit], ids=["eager", "jit"])
def test_under_jit(wrap):
    x, w = cc.randn(48, 48), (cc.randn(48, 48) * 0.1).requires_grad_()
    plain = cc.gradients(blocks(x, w, lambda f, x: f(x)), [w])[0]
    found = wrap(lambda x, w: cc.gradients(blocks(x, w, cc.checkpoint), [w])[0])(x, w)
    np.testing.assert_allclose(found.numpy(), plain.numpy(), rtol=1e-4, atol=1e-5)


def test_dropped_elements_are_the_same_again():
    x = cc.ones(1000, requires_grad=True)
    y = cc.checkpoint(lambda x: x * (cc.rand(1000) > 0.5).float(), x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_memory():
    """Eight layers, each of eight large tensors: only those between layers are kept."""

    def layer(x):
        for _ in range(8):
            x = x.sin()
        return x

    def peak(call):
        x = cc.zeros(1 << 16, requires_grad=True)
        tracemalloc.start()
        y = x
        for _ in range(8):
            y = call(layer, y)
        y.sum().backward()
        x.grad.realize()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(cc.checkpoint) < 0.5 * peak(lambda f, x: f(x))


def test_without_gradients():
    with cc.no_grad():
        assert cc.checkpoint(lambda x: x + 1, cc.ones(2)).tolist() == [2, 2]
    assert cc.checkpoint(lambda x: (x, 3, "a"), cc.ones(2))[1:] == (3, "a")
