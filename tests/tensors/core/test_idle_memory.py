"""Many shapes do not add up: older plans free their memory, and the oldest plans and traces are dropped."""

import gc

import candle_convert as cc
import numpy as np
import torch
from candle_convert.tensors import jit
from candle_convert.tensors.core import idle_memory, realize
from candle_convert.tensors.core.idle_memory import IdleMemory

SHAPES = [(number, 3) for number in range(1, 12)]


class Plan:
    """A plan that keeps 30 bytes."""

    def __init__(self):
        self.idle = 30

    def release(self):
        self.idle = 0


def test_older_plans_free_their_memory(monkeypatch):
    monkeypatch.setattr(idle_memory, "MAX_IDLE_NBYTES", 70)
    memory, plans = IdleMemory(), [Plan() for _ in range(5)]
    for each in (*plans, plans[2]):
        each.idle = 30
        memory.used(each)
    assert [each.idle for each in plans] == [0, 0, 30, 30, 30]
    monkeypatch.setattr(idle_memory, "MAX_PLANS", 1)
    memory.used(plans[0])
    assert [each.idle for each in plans[2:]] == [30, 0, 0]


def test_the_oldest_plans_are_dropped(monkeypatch):
    monkeypatch.setattr(realize, "MAX_STEPS", 12)
    for shape in SHAPES:
        value = np.ones(shape, np.float32)
        found = ((cc.tensor(value) * 2 + 1).exp() - 3).sum(1).tanh()
        assert found.numpy().tolist() == ((torch.tensor(value) * 2 + 1).exp() - 3).sum(1).tanh().tolist()
    assert sum(len(each.steps) for each in realize._plans.values()) <= 12


def test_the_oldest_traces_are_dropped(monkeypatch):
    monkeypatch.setattr(jit, "MAX_STEPS", 12)

    @cc.jit
    def traced(x):
        return (x * 2 + 1).exp().sum()

    before = sum(type(each) is jit.Trace for each in gc.get_objects())
    for shape in SHAPES * 2:
        value = np.ones(shape, np.float32)
        np.testing.assert_allclose(
            traced(cc.tensor(value)).item(), (torch.tensor(value) * 2 + 1).exp().sum().item(), 1e-5
        )
    assert sum(type(each) is jit.Trace for each in gc.get_objects()) - before == 3
