"""Jacobians, Hessians and products with them are torch's."""

import candle_convert as cc
import numpy as np
import pytest
import torch

X, Y = [[0.3, -1.2], [0.7, 0.1]], [0.5, -0.4]


def _flat(item):
    return (
        [np.asarray(each) for part in item for each in _flat(part)]
        if isinstance(item, tuple)
        else [item.detach().numpy()]
    )


def _both(ours, theirs):
    for one, other in zip(_flat(ours), _flat(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def _inputs(t):
    return t.tensor(X, dtype=t.float64), t.tensor(Y, dtype=t.float64)


def _vectors(x, y):
    return (x @ y).sin(), x.exp()


def _number(x, y):
    return ((x @ y) ** 3).sum() + y[0] * y[1]


def test_jacobian():
    _both(*[t.autograd.functional.jacobian(_vectors, _inputs(t)) for t in (cc, torch)])
    _both(*[t.autograd.functional.jacobian(lambda x: x.sum(0), _inputs(t)[0]) for t in (cc, torch)])


def test_hessian():
    _both(*[t.autograd.functional.hessian(_number, _inputs(t)) for t in (cc, torch)])
    _both(*[t.autograd.functional.hessian(lambda x: x.prod(), _inputs(t)[1]) for t in (cc, torch)])


@pytest.mark.parametrize("name", ["vjp", "jvp"])
def test_products(name):
    def found(t):
        x, y = _inputs(t)
        v = (y, x) if name == "vjp" else (x + 1, y + 2)
        return getattr(t.autograd.functional, name)(_vectors, (x, y), v)

    _both(found(cc), found(torch))


@pytest.mark.parametrize("name", ["hvp", "vhp"])
def test_second_products(name):
    _both(*[getattr(t.autograd.functional, name)(_number, _inputs(t), _inputs(t)) for t in (cc, torch)])


def test_create_graph():
    def found(t):
        x = t.tensor(Y, dtype=t.float64, requires_grad=True)
        t.autograd.functional.jacobian(lambda x: x**3, x, create_graph=True).sum().backward()
        return x.grad

    _both(found(cc), found(torch))


def test_independent_results():
    x, y = _inputs(cc)
    assert cc.autograd.functional.jacobian(lambda x, y: x.sum(), (x, y))[1].tolist() == [0, 0]
    with pytest.raises(cc.UsageError, match="does not depend"):
        cc.autograd.functional.jacobian(lambda x, y: x.sum(), (x, y), strict=True)
    with pytest.raises(cc.UsageError, match="wrong shape"):
        cc.autograd.functional.vjp(lambda x: x, x, y)
