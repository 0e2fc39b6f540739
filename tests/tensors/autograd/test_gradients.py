"""Gradients: those of every operation are torch's, of first and second order."""

import collections

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import compare, example

FORMULAS = [
    "a.exp()", "(a * a + 1).log()", "(a * a + 1).sqrt()", "a.sin()", "a.cos()", "a.tanh()", "a.sigmoid()", "m.erf(a)",
    "m.atan(a)", "m.asinh(a)", "m.sinh(a)", "m.cosh(a)", "m.tan(a / 3)", "m.asin(a / 4)", "m.acos(a / 4)",
    "m.atanh(a / 4)", "m.log1p(a * a)", "m.expm1(a)", "m.rsqrt(a * a + 1)", "a.abs()", "a.square()", "a ** 3",
    "2 ** a", "m.relu(a)", "m.log2(a * a + 1)", "m.exp2(a)", "m.erfc(a)", "a.clamp(-1, 1)", "m.frac(a)", "m.sign(a)",
    "a + b", "a - b", "a * b", "a / (b * b + 1)", "(a * a + 1) ** b", "m.maximum(a, b)", "m.minimum(a, b)",
    "m.where(a > b, a, b)", "m.atan2(a, b)", "m.hypot(a, b)", "m.logaddexp(a, b)", "a % 2", "m.fmod(a, 2)",
    "m.lerp(a, b, 0.3)", "m.addcmul(a, a, b, value=2)", "a.sum()", "a.sum(1)", "a.mean()",
    "a.mean((0, 2), keepdim=True)", "a.prod()", "a.prod(1)", "a.max()", "a.amax(1)", "m.max(a, 1)[0]",
    "m.min(a, 2, keepdim=True)[0]", "a.var()", "a.std(1)", "a.norm()", "a.norm(1, 1)", "a.norm(3, 1)",
    "m.logsumexp(a, 1)", "m.softmax(a, 1)", "m.log_softmax(a, -1)", "a.cumsum(1)", "a.cumprod(1)", "a.median()",
    "a @ b.mT", "m.einsum('bij,bkj->bik', a, b)", "m.einsum('bij,bij->b', a, b)", "a[0] @ b[0, 0]", "a[0, 0] @ b[0].T",
    "m.outer(a[0, 0], b[0, 1])", "m.bmm(a, b.mT)", "a.reshape(-1)", "a.permute(2, 0, 1)", "a.unsqueeze(1) * b",
    "a.expand(2, 2, 3, 4)", "a.repeat(2, 1, 1)", "a.flip(1)", "m.roll(a, 1, 0)", "m.tril(a)", "m.diagonal(a)",
    "a.flatten(1)", "a[0]", "a[:, ::2]", "a[..., -1]", "a[[0, 0, 1]]", "a[:, [2, 0]]", "a[[0, 1], [2, 0]]", "a[a > 0]",
    "a[:, 1:, 0]", "a.index_select(1, m.tensor([2, 0, 2]))", "m.gather(a, 2, m.tensor([[[0, 3], [1, 1], [2, 0]]]))",
    "m.scatter_add(a, 1, m.tensor([[[2, 0, 1, 1]]]).expand(2, 3, 4), b)",
    "m.index_add(a, 2, m.tensor([0, 0, 3, 1]), b)",
    "a.masked_fill(a > 0, 1)", "m.cat([a, b], 1)", "m.stack([a, b * 2])", "a.split(2, 2)[1]", "a.chunk(2)[0]",
    "m.topk(a, 2)[0]", "m.sort(a, 1)[0]", "a.unbind(1)[2]", "m.repeat_interleave(a, 2)", "m.selu(a)", "m.celu(a)",
    "a.float().double()", "m.quantile(a, 0.3, 1)", "m.quantile(a, 0.6, interpolation='midpoint')",
]  # fmt: skip


def grads(m, formula, a, b, second):
    """The gradients of a weighted sum of a formula, and of their squares' sum."""
    y = eval(formula, {"m": m, "a": a, "b": b})
    weights = m.arange(1.0, y.numel() + 1, dtype=m.float64).reshape(y.shape) / y.numel()
    loss = (y * weights).sum()
    if not second:
        loss.backward()
        return a.grad, b.grad
    loss.backward(create_graph=True)
    total = (a.grad * a.grad).sum() + (0 if b.grad is None else (b.grad * b.grad).sum())
    a.grad = b.grad = None
    if total.requires_grad:
        total.backward()
    return a.grad, b.grad


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients(formula, second):
    values = [example((2, 3, 4), "f64", seed) for seed in (0, 1)]
    theirs = grads(torch, formula, *(value.clone().requires_grad_() for value in values), second)
    found = grads(cc, formula, *(cc.from_dlpack(value).requires_grad_() for value in values), second)
    for one, other in zip(theirs, found, strict=True):
        if one is None or other is None:
            assert one is None or not one.any()
            assert other is None or not other.numpy().any()
        else:
            compare(one, other.detach(), rtol=1e-8, atol=1e-9)


def test_function_transformations():
    def f(x):
        return (x**3).sum()

    x = cc.tensor([1.0, 2.0, -1.5])
    np.testing.assert_allclose(cc.grad(f)(x).numpy(), 3 * x.numpy() ** 2)
    value, grad = cc.value_and_grad(f)(x)
    assert value.item() == pytest.approx(f(x).item())
    np.testing.assert_allclose(grad.numpy(), 3 * x.numpy() ** 2)
    second = cc.grad(lambda x: cc.grad(f)(x).sum())(x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())
    third = cc.grad(lambda x: cc.grad(lambda x: cc.grad(f)(x).sum())(x).sum())(x)
    np.testing.assert_allclose(third.numpy(), 6)
    assert not grad.requires_grad


def test_arguments_of_functions():
    def f(parameters, x):
        return ((x @ parameters["w"] + parameters["b"]) ** 2).mean(), x.shape

    parameters = {"w": cc.randn(3, 2), "b": cc.zeros(2)}
    grad, aux = cc.grad(f, has_aux=True)(parameters, cc.ones(4, 3))
    assert aux == (4, 3)
    assert {name: each.shape for name, each in grad.items()} == {"w": (3, 2), "b": (2,)}
    pair = collections.namedtuple("pair", "w b")(cc.ones(2), [cc.ones(3)])
    grad = cc.grad(lambda p: (p.w.sum() * p.b[0]).sum())(pair)
    assert grad.w.tolist() == [3, 3]
    assert grad.b[0].tolist() == [2, 2, 2]
    both = cc.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(cc.tensor([2.0]), cc.tensor([3.0]))
    assert [each.item() for each in both] == [3, 2]
    assert cc.grad(lambda x: (cc.stop_gradient(x) * x).sum())(cc.tensor([5.0])).item() == 5
    with pytest.raises(cc.UsageError, match="E-TENSOR-GRAD"):
        cc.grad(lambda x: x)(cc.ones(2))
    with pytest.raises(cc.UsageError, match="has no gradient"):
        cc.grad(lambda x: x.sum())(cc.arange(3))


def test_modes():
    x = cc.ones(3, requires_grad=True)
    with cc.no_grad():
        assert not (x * 2).requires_grad
        with cc.enable_grad():
            assert (x * 2).requires_grad
    assert not (x * 2).detach().requires_grad
    with pytest.raises(cc.UsageError, match="in place"):
        x += 1
    with pytest.raises(cc.UsageError, match="detach"):
        (x * 2).numpy()
    with pytest.raises(cc.UsageError, match="float"):
        cc.arange(3).requires_grad_()
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), [4, 4, 4])
    np.testing.assert_array_equal(x.grad.numpy(), [8, 8, 8])
    (x * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [11, 11, 11])
    (x * 3).backward(cc.tensor([1.0, 0, 2]))
    np.testing.assert_array_equal(x.grad.numpy(), [14, 11, 17])


def test_values_before_changes():
    """An expression keeps the values that its tensors had when it was built."""
    a = cc.ones(2)
    b = a * 2
    a += 5
    a[0] = 100
    np.testing.assert_array_equal(b.numpy(), [2, 2])
    w = cc.ones(2, requires_grad=True)
    loss = (w * w).sum()
    with cc.no_grad():
        w *= 10
    loss.backward()
    np.testing.assert_array_equal(loss.detach().numpy(), 2)
