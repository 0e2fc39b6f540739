"""Realization: plans are cached by structure, shared parts are computed once, hazards of lazy evaluation."""

import re
import threading
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.tensors.core import plan, realize


@pytest.fixture
def steps(monkeypatch):
    """The operators of the plans that are made from here on."""
    made = []

    class Watched(plan.Plan):
        def __init__(self, steps, *others):
            made.extend(signature.op.name for signature, *_ in steps)
            super().__init__(steps, *others)

    monkeypatch.setattr(realize, "Plan", Watched)
    monkeypatch.setattr(realize, "_plans", {})
    monkeypatch.setattr(realize, "_tree_plans", {})
    return made


def test_equal_structures_share_a_plan():
    def f(a, b):
        return ((a @ b).exp() + a.sum()).mean()

    f(cc.rand(3, 3), cc.rand(3, 3)).realize()
    known = len(realize._plans), len(realize._tree_plans)
    for _ in range(3):
        f(cc.rand(3, 3), cc.rand(3, 3)).realize()
    assert (len(realize._plans), len(realize._tree_plans)) == known
    f(cc.rand(4, 4), cc.rand(4, 4)).realize()
    assert (len(realize._plans), len(realize._tree_plans)) != known


def test_shared_parts_are_computed_once(steps):
    x = cc.rand(5)
    y = x.exp()
    z = (y + 1) * (y - 1) + x.exp()
    np.testing.assert_allclose(z.numpy(), np.exp(x.numpy()) ** 2 - 1 + np.exp(x.numpy()), rtol=1e-5)
    y.numpy()
    assert steps.count("Exp") == 1


def test_one_array_used_twice_or_two_arrays():
    a, b = cc.tensor([1.0, 2.0]), cc.tensor([3.0, 5.0])
    for one, two in ((a, a), (a, b), (b, b), (b, a)):
        np.testing.assert_array_equal((one * two - one).numpy(), one.numpy() * two.numpy() - one.numpy())


def test_parts_realized_between():
    a = cc.tensor([1.0, 2.0])
    b = a * 2
    c = b + 1
    b.numpy()
    np.testing.assert_array_equal(c.numpy(), [3, 5])
    d = (a + 1) * 3
    del a
    np.testing.assert_array_equal(d.numpy(), [6, 9])


def test_deep_expressions():
    x, total = cc.zeros(2), cc.zeros(2)
    for _ in range(20_000):
        x = x + 1
    np.testing.assert_array_equal(x.numpy(), 20_000)
    w = cc.ones(1, requires_grad=True)
    for _ in range(5_000):
        total = total + w
    total.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 10_000)


def test_results_are_not_shared():
    a = cc.arange(6)
    b = a.reshape(2, 3)
    b.numpy()[0] = 7
    np.testing.assert_array_equal(a.numpy(), range(6))
    c = cc.zeros(3)
    d = c + 0
    d.numpy()[0] = 1
    np.testing.assert_array_equal(c.numpy(), 0)


def test_special_values():
    a = cc.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
    assert (a / a).isnan().tolist() == [True] * 4
    assert (a != a).tolist() == [True, False, False, False]
    assert cc.tensor([127], dtype="i8").add(1).tolist() == [-128]
    assert (cc.tensor([250], dtype="u8") + 10).tolist() == [4]
    assert cc.zeros(0, 3).sum(0).tolist() == [0, 0, 0]
    assert (cc.zeros(0, 3) @ cc.zeros(3, 0)).shape == (0, 0)


def test_threads():
    a = cc.rand(50, 50)
    shared = (a @ a).exp()
    expected = np.exp(a.numpy() @ a.numpy())
    found = []

    def work():
        found.extend((shared + cc.ones(50)).numpy() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    np.testing.assert_allclose(found, [expected + 1] * 80, rtol=1e-4)


def test_compiled_plans_compute_the_same(monkeypatch):
    monkeypatch.setattr(plan, "COMPILED_AFTER", 0)
    monkeypatch.setattr(plan, "MIN_COMPILED_STEPS", 1)
    monkeypatch.setattr(realize, "_plans", {})
    monkeypatch.setattr(realize, "_tree_plans", {})
    x, w = cc.randn(33, 17), cc.randn(17, 9, requires_grad=True)
    loss = ((x @ w).relu() * 2 - 1).square().mean()
    loss.backward()
    hidden = x.numpy() @ w.detach().numpy()
    y = np.maximum(hidden, 0) * 2 - 1
    assert loss.item() == pytest.approx((y**2).mean(), rel=1e-5)
    expected = x.numpy().T @ (2 * y / y.size * 2 * (hidden > 0))
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_errors_name_shapes_and_lines():
    with pytest.raises(cc.UsageError, match=r"shapes \[2, 3\] and \[4\] cannot be broadcast"):
        cc.zeros(2, 3) + cc.zeros(4)
    with pytest.raises(cc.UsageError, match=r"\[2, 3\] and \[2, 3\] cannot be multiplied"):
        cc.zeros(2, 3) @ cc.zeros(2, 3)
    y = cc.zeros(3).gather(0, cc.tensor([7]))  # this line is named
    with pytest.raises(cc.Error) as caught:
        y.numpy()
    assert f"{__file__}:" in str(caught.value)
    number = int(re.search(rf"{re.escape(__file__)}:(\d+)", str(caught.value))[1])
    assert Path(__file__).read_text().split("\n")[number - 1].endswith("# this line is named")


def test_text():
    assert repr(cc.tensor([[1.5, 2], [3, 4]])) == (
        "tensor([[1.5, 2. ],\n        [3. , 4. ]], shape=(2, 2), dtype=f32, device='cpu')"
    )
    assert repr(cc.zeros(0)) == "tensor([], shape=(0,), dtype=f32, device='cpu')"
    assert "requires_grad=True" in repr(cc.ones(1, requires_grad=True))


def test_plans_of_convolutions_are_compiled_by_their_multiplications(monkeypatch):
    monkeypatch.setattr(plan, "COMPILED_AFTER", 2 * 16 * 16 * 9 * 40 * 40)
    x, w = cc.rand(1, 16, 40, 40), cc.rand(16, 16, 3, 3)
    compiled = []
    monkeypatch.setattr(plan.Plan, "compile", lambda self: compiled.append(self))
    made = [len(compiled) for _ in range(4) if cc.nn.functional.conv2d(x, w, padding=1).numpy().any()]
    assert made[:3] == [0, 0, 1]
