"""Functions of functions, and modules as functions of their parameters, give what torch.func gives."""

import importlib
from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch

X = np.random.default_rng(0).normal(size=(4, 3))


def _layer(t):
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Linear(3, 2), t.nn.Tanh()).double()


def _found(t):
    f, x, layer = t.func, t.tensor(X), _layer(t)
    parameters = {name: each.detach() for name, each in layer.named_parameters()}

    def loss(parameters, x):
        return (f.functional_call(layer, parameters, (x,)) ** 2).sum()

    each = f.vmap(f.grad(loss), (None, 0))(parameters, x)
    gradient, value = f.grad_and_value(loss)(parameters, x)
    result, pulled = f.vjp(lambda a, b: a * b.sum(), x[0], x[1])
    stacked, _ = f.stack_module_state([_layer(t), _layer(t)])
    return [
        each["0.weight"], each["0.bias"], gradient["0.weight"], value, result, *pulled(x[2]),
        f.jacrev(lambda x: x.sin().sum(0))(x), f.jacfwd(lambda x: x**2)(x[0]),
        f.hessian(lambda x: (x**3).sum() * x[0])(x[0]), *f.jvp(lambda x: x**3, (x[0],), (x[1],)),
        f.vmap(f.jacrev(lambda x: x**2))(x), f.vmap(lambda a: a * 2, out_dims=1)(x),
        f.vmap(lambda a, b: a @ b, in_dims=(1, None))(x, x[:, 0]),
        f.vmap(lambda p, x: f.functional_call(layer, p, (x,)), in_dims=(0, None))(stacked, x),
        f.jacrev(lambda a, b: a * b, argnums=(0, 1))(x[0], x[1])[1],
    ]  # fmt: skip


def test_transforms():
    for one, other in zip(_found(cc), _found(torch), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 1e-9, 1e-12)


def test_what_makes_no_sense():
    with pytest.raises(cc.UsageError, match="lengths"):
        cc.vmap(lambda a, b: a + b)(cc.ones(2), cc.ones(3))
    with pytest.raises(cc.UsageError, match="in_dims"):
        cc.vmap(lambda a: a, in_dims=(0, 0))(cc.ones(2))
    layer = cc.nn.Linear(1, 1)
    with pytest.raises(cc.UsageError, match="has no other"):
        cc.func.functional_call(layer, {"other": cc.ones(1)}, cc.ones(1))
    with pytest.raises(cc.UsageError, match="is not given"):
        cc.func.functional_call(layer, {"bias": cc.ones(1)}, cc.ones(1), strict=True)
    before = layer.bias.item()
    assert cc.func.functional_call(layer, {"bias": cc.ones(1)}, cc.zeros(1)).item() == 1
    assert layer.bias.item() == before


def test_gradients_are_differentiated_by_all_transforms():
    def found(t: Any) -> list[Any]:
        f = importlib.import_module(f"{t.__name__}.func")
        x = t.tensor([0.5, 0.2, 0.3], dtype=t.float64)
        moving = x.clone().requires_grad_()

        def value(x: Any) -> Any:
            return x.sin().sum() * x.prod()

        f.grad(value)(moving).sum().backward()
        return [
            f.jvp(f.grad(value), (x,), (t.ones_like(x),))[1], f.jacfwd(f.grad(value))(x), f.jacrev(f.grad(value))(x),
            f.vjp(f.grad(value), x)[1](x)[0], f.grad(lambda x: f.jvp(value, (x,), (t.ones_like(x),))[1])(x),
            f.grad(lambda x: f.vjp(value, x)[1](x.sum())[0].sum())(x), f.hessian(lambda x: f.grad(value)(x).sum())(x),
            f.vmap(f.grad(value))(x[None])[0], moving.grad,
        ]  # fmt: skip

    ours = found(cc)
    assert not any(each.requires_grad for each in ours)
    for one, other in zip(ours, found(torch), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), 1e-9, 1e-12)
