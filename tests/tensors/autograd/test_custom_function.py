"""function: operations with a body and a gradient in NumPy are what torch's own are."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import compare


@cc.function
def scaled_sine(x, scale, *, phase=0.0):
    return np.sin(x * scale + phase)


@scaled_sine.gradient
def scaled_sine_gradient(grad, x, scale, *, phase):
    inner = grad * np.cos(x * scale + phase)
    return inner * scale, inner * x


def test_values_and_gradients():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4)), rng.standard_normal((1, 4))]
    x, scale = (cc.tensor(each).requires_grad_() for each in arrays)
    (scaled_sine(x, scale, phase=0.5).exp() * x).sum().backward()
    theirs, factor = (torch.tensor(each, requires_grad=True) for each in arrays)
    (torch.sin(theirs * factor + 0.5).exp() * theirs).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(scale.grad.numpy(), factor.grad.numpy(), rtol=1e-6)
    assert scaled_sine(2.0, [0.0, 1.0]).shape == (2,)
    assert scaled_sine.__name__ == "scaled_sine"


@pytest.mark.parametrize("size", [3, 200])
def test_under_jit(size):
    """Small steps run in NumPy, large ones in a plan with kernels."""
    w = cc.ones(size, requires_grad=True)

    @cc.jit
    def step(x):
        loss = (scaled_sine(x @ x, w) ** 2).sum()
        w.grad = None
        loss.backward()
        return loss.detach()

    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((size, size)).astype(np.float32) / size
        found = step(cc.tensor(x))
        theirs = torch.ones(size, requires_grad=True)
        loss = (torch.sin(torch.tensor(x @ x) * theirs) ** 2).sum()
        loss.backward()
        np.testing.assert_allclose(found.numpy(), loss.detach().numpy(), rtol=1e-4)
        np.testing.assert_allclose(w.grad.numpy(), theirs.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_several_results():
    @cc.function
    def parts(x, count):
        return x * 2, (x * x).sum(), count + 1

    @parts.gradient
    def parts_gradient(grads, x, count):
        first, second, third = grads
        assert third is None
        return (0 if first is None else first * 2) + (0 if second is None else second * 2 * x), None

    x = cc.tensor([1.0, 2.0, 3.0], requires_grad=True)
    double, square, count = parts(x, 4)
    assert count.item() == 5
    (square + 1).backward()
    assert x.grad.tolist() == [2, 4, 6]
    (double.sum() * 3).backward()
    assert x.grad.tolist() == [8, 10, 12]


def test_the_second_derivative():
    @cc.function
    def cube_gradient(grad, x):
        return (3 * grad * x * x,)

    @cube_gradient.gradient
    def cube_second(grads, grad, x):
        return 3 * grads[0] * x * x, 6 * grads[0] * grad * x

    @cc.function
    def cube(x):
        return x**3

    cube.gradient(cube_gradient)
    x = cc.tensor([1.0, -2.0])
    second = cc.grad(lambda x: cc.grad(lambda x: cube(x).sum())(x).sum())(x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())
    with pytest.raises(cc.UnsupportedError, match="with a gradient"):
        cc.grad(lambda x: cc.grad(lambda x: scaled_sine(x, 1.0).sum())(x).sum())(x)


def test_errors_say_what_is_wrong():
    @cc.function
    def halved(x):
        return x / 2 if x.sum() > 0 else x[:1]

    with pytest.raises(cc.UsageError, match=r"halved returned f32\[1\], and f32\[3\] for other elements.*test_custom"):
        halved(-cc.ones(3)).numpy()
    x = cc.ones(3, requires_grad=True)
    with pytest.raises(cc.UnsupportedError, match="has no gradient"):
        halved(x).sum().backward()

    @halved.gradient
    def wrong(grad, x):
        return grad[:2]

    x = cc.ones(3, requires_grad=True)
    halved(x).sum().backward()
    with pytest.raises(cc.UsageError, match=r"the gradient of halved returned a gradient of shape \[2\] of argument 0"):
        x.grad.numpy()
    with pytest.raises(cc.UsageError, match="hashable"):
        scaled_sine(1.0, 2.0, phase=[1])


@pytest.mark.parametrize(
    "formula",
    ["m.linalg.inv(a[:2])", "m.linalg.inv(a.mT @ a)", "m.linalg.pinv(a * 2)", "m.linalg.pinv(a @ a.mT)",
     "m.linalg.svdvals(a.mT @ a)", "m.linalg.eigvalsh(a.mT @ a)"],
)  # fmt: skip
def test_second_gradients_pass_through_what_the_input_is_computed_from(formula):
    found = []
    for m in (torch, cc):
        a = m.tensor([[2.0, 1.0], [0.0, 2.0], [0.0, 3.0]], dtype=m.float64, requires_grad=True)
        y = eval(formula, {"m": m, "a": a})
        weights = m.arange(1.0, y.numel() + 1, dtype=m.float64).reshape(y.shape)
        (first,) = m.autograd.grad((y * weights).sum(), a, create_graph=True)
        first.square().sum().backward()
        found.append(a.grad)
    compare(*found, rtol=1e-8, atol=1e-8)
