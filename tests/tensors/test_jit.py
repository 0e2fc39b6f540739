"""jit: traced functions compute what they compute without it, and change what they change."""

import re
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
import torch


def test_a_function_is_traced_once_for_each_structure():
    calls = []

    @cc.jit
    def f(x, scale=2, *, extra=()):
        calls.append(x.shape)
        return {"y": x * scale + sum(extra), "n": (x.sum(), 7)}

    for count in (3, 4, 3):
        x = cc.rand(count)
        found = f(x)
        np.testing.assert_allclose(found["y"].numpy(), x.numpy() * 2)
        np.testing.assert_allclose(found["n"][0].numpy(), x.numpy().sum(), rtol=1e-6)
        assert found["n"][1] == 7
    assert calls == [(3,), (4,)]
    assert f(cc.ones(3), 3)["y"].tolist() == [3, 3, 3]
    assert f(cc.ones(3), 3.0)["y"].tolist() == [3, 3, 3]
    assert f(cc.ones(3), extra=[cc.ones(3), cc.ones(3)])["y"].tolist() == [4, 4, 4]
    assert f(np.ones(3, np.float32))["y"].tolist() == [2, 2, 2]
    assert len(calls) == 5


def trained(m, wrap, accumulate=False):
    """Ten steps of momentum SGD; parameters, momentum and gradients live outside of the step."""
    rng = np.random.default_rng(0)
    xs = [m.tensor(rng.standard_normal((8, 3)), dtype=m.float32) for _ in range(10)]
    w = m.tensor(rng.standard_normal((3, 2)), dtype=m.float32, requires_grad=True)
    b = m.zeros(2, requires_grad=True)
    momentum = [m.zeros(3, 2), m.zeros(2)]

    def step(x):
        if not accumulate:
            w.grad = b.grad = None
        loss = ((x @ w + b).tanh() - x[:, :2] * 2).square().mean()
        loss.backward()
        with m.no_grad():
            for p, v in zip((w, b), momentum, strict=True):
                v.mul_(0.9).add_(p.grad)
                p -= 0.1 * v
        return loss.detach()

    step = wrap(step)
    return [step(x).item() for x in xs], w, b


@pytest.mark.parametrize("accumulate", [False, True])
def test_training_steps(accumulate):
    expected, their_w, _ = trained(torch, lambda f: f, accumulate)
    for wrap in (cc.jit, lambda f: f):
        found, w, b = trained(cc, wrap, accumulate)
        np.testing.assert_allclose(found, expected, rtol=2e-5)
        np.testing.assert_allclose(w.detach().numpy(), their_w.detach().numpy(), rtol=1e-4)
        np.testing.assert_allclose(w.grad.numpy(), their_w.grad.numpy(), rtol=1e-4, atol=1e-6)
        assert w.requires_grad
        assert b.is_leaf


def test_outside_values_are_read_at_each_call():
    scale = cc.ones(1)
    f = cc.jit(lambda x: x * scale)
    assert f(cc.ones(2)).tolist() == [1, 1]
    scale.fill_(5)
    assert f(cc.ones(2)).tolist() == [5, 5]
    scale += cc.ones(1)
    assert f(cc.ones(2)).tolist() == [6, 6]


def test_arguments_that_are_changed():
    @cc.jit
    def f(x, w):
        x += 1
        ((x * w).sum()).backward()

    x, w = cc.zeros(2), cc.ones(2, requires_grad=True)
    f(x, w)
    f(x, w)
    assert x.tolist() == [2, 2]
    assert w.grad.tolist() == [3, 3]


def test_random_numbers_are_drawn_again():
    f = cc.jit(lambda x: x + cc.rand(4))
    cc.manual_seed(3)
    found = [f(cc.zeros(4)).tolist() for _ in range(3)]
    torch.manual_seed(3)
    np.testing.assert_array_equal(found, [torch.rand(4).tolist() for _ in range(3)])


def test_gradients_inside():
    f = cc.jit(cc.value_and_grad(lambda w, x: ((x @ w) ** 2).sum()))
    w, x = cc.rand(3, 2), cc.rand(4, 3)
    for _ in range(2):
        value, grad = f(w, x)
        product = x.numpy() @ w.numpy()
        np.testing.assert_allclose(value.item(), (product**2).sum(), rtol=1e-5)
        np.testing.assert_allclose(grad.numpy(), 2 * x.numpy().T @ product, rtol=1e-5)


def test_values_that_are_not_known():
    with pytest.raises(cc.UsageError, match="E-TENSOR-TRACE"):
        cc.jit(lambda x: x if x.sum() > 0 else -x)(cc.ones(2))
    with pytest.raises(cc.UsageError, match="hashable"):
        cc.jit(lambda x, y: x)(cc.ones(2), {1, 2})
    assert cc.jit(lambda x: cc.jit(lambda y: y * 2)(x) + 1)(cc.ones(2)).tolist() == [3, 3]


def test_arguments_that_are_returned_as_they_are():
    f = cc.jit(lambda x, y, z: (y, (x * 2 + 1).sum(), x))
    x, y = cc.rand(1 << 15), cc.rand(3)
    found = f(x, y, cc.ones(1))
    np.testing.assert_array_equal(found[0].numpy(), y.numpy())
    np.testing.assert_array_equal(found[2].numpy(), x.numpy())
    np.testing.assert_allclose(found[1].item(), (x.numpy() * 2 + 1).sum(), rtol=1e-5)


def test_values_that_are_indexed_are_read_at_each_call():
    """`backward` does not cut an indexed tensor off from where its values come from."""
    w, ids = cc.rand(6, 4).requires_grad_(), cc.tensor([[0, 3], [5, 1]])

    @cc.jit
    def f(ids):
        w.grad = None
        loss = (w[ids].reshape(4, 4) @ w.T).sin().sum()
        loss.backward()
        return loss.detach()

    for _ in range(3):
        found = f(ids).item()
        theirs = torch.tensor(w.detach().numpy())
        assert found == pytest.approx((theirs[ids.numpy()].reshape(4, 4) @ theirs.T).sin().sum().item(), rel=1e-5)
        w.data = cc.rand(6, 4)


def test_errors_name_shapes_and_lines():
    pick = cc.jit(
        lambda table, places: table[places].sum()  # this line is named
    )
    table = cc.ones(4, 3)
    pick(table, cc.tensor([1, 2]))
    for _ in range(3):
        with pytest.raises(cc.UsageError, match=r"Gather of f32\[4, 3\], i64\[2\], built at .*:(\d+)") as caught:
            pick(table, cc.tensor([1, 9]))
        number = int(re.search(r"built at .*:(\d+)", str(caught.value))[1])
        assert Path(__file__).read_text().split("\n")[number - 1].endswith("# this line is named")


def _written_local(x):
    made = x * 2
    made[0] = 7
    made.add_(1)
    return made


def _written_view(x):
    part = x[1:]
    part.mul_(3)
    return part, x.sum()


def _written_argument(x):
    return x.exp_()


@pytest.mark.parametrize("function", [_written_local, _written_view, _written_argument], ids=lambda each: each.__name__)
def test_results_that_were_written_to(function):
    """They have the values after the writes, and so has the argument, as torch's."""
    traced = cc.jit(function)
    for number in range(3):
        value = np.float32([number, 1, -2])
        theirs, ours = torch.tensor(value), cc.tensor(value)
        expected, found = function(theirs), traced(ours)
        for one, other in zip([*expected, theirs], [*found, ours], strict=True):
            np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-6)


def _from_zeros(m, x):
    made = m.zeros(3)
    made[0] = 7
    made += x
    return made


def _last_part(m, x):
    part = x[..., -3:]
    part[part > 0] = 2
    return part


def _total(m, x):
    total = m.zeros(())
    for _ in range(2):
        total += x.sum()
    return total


@pytest.mark.parametrize("function", [_from_zeros, _last_part, _total], ids=lambda each: each.__name__)
def test_each_call_makes_its_own_tensors(function):
    """What a function makes and writes to begins anew at each call, as torch's; a view of all of an argument too."""
    traced = cc.jit(lambda x: function(cc, x))
    for number in range(4):
        value = np.float32([number, 1, -2])
        np.testing.assert_allclose(traced(cc.tensor(value)).numpy(), function(torch, torch.tensor(value)).numpy())
