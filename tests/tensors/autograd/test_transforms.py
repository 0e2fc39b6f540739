"""Functions of functions, and modules as functions of their parameters, give what torch.func gives."""

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
