"""Chains of more expressions than are left unrealized without gradients: as long as torch's, computed once."""

import candle_convert as cc
import numpy as np
import torch
from candle_convert.tensors.core.plan import Plan

STEPS = 450


def step(module, x, scale):
    """A loss and its gradients by both tensors, through thrice as many operators."""
    found = x
    for _ in range(STEPS):
        found = (found * scale).tanh() + x
    found.sum().backward()
    return x.grad, scale.grad


def inputs(module):
    return [module.tensor(values, requires_grad=True) for values in ([0.5, -0.25, 0.125], [0.5])]


def test_backward_computes_the_chain_once(monkeypatch):
    runs = []
    run = Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, arrays: runs.append(len(plan.steps)) or run(plan, arrays))
    found = [each.numpy() for each in step(cc, *inputs(cc))]
    assert len(runs) == 1
    for one, other in zip(found, step(torch, *inputs(torch)), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5)


def test_jit_traces_it():
    x, scale = inputs(cc)
    found = cc.jit(lambda x, scale: step(cc, x, scale))(x, scale)
    for one, other in zip(found, step(torch, *inputs(torch)), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5)
