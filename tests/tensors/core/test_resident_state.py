"""Resident state: steps under jit compute what PyTorch computes, and what the program holds is what it has there."""

import contextlib

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.runtime.execute import replay
from candle_convert.runtime.execute.workspace import Workspace
from candle_convert.tensors.core import resident_state

IDS = np.arange(64) % 7


@pytest.fixture(params=["in turns", "in place"])
def arrays(request, monkeypatch):
    """Whether parameters have two arrays or one."""
    if request.param == "in place":
        monkeypatch.setattr(replay, "IN_PLACE_FROM", 0)
    return request.param


def weights():
    rng = np.random.default_rng(0)
    return rng.standard_normal((7, 16)).astype(np.float32), rng.standard_normal((16, 32)).astype(np.float32)


def stepper(m, wrap):
    """A step of AdamW for an embedding and a matrix, and these."""
    table, w = (m.tensor(value, requires_grad=True) for value in weights())
    optimizer = m.optim.AdamW([table, w], lr=0.01)

    def step(ids):
        optimizer.zero_grad()
        loss = ((table[ids] @ w).tanh() - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return wrap(step), table, w


def test_what_is_held_is_what_torch_has(arrays):
    """Results and gradients stay as they are, and what shares memory with a parameter follows it."""
    ours, *mine = stepper(cc, cc.jit)
    theirs, *their = stepper(torch, lambda step: step)
    ids = cc.tensor(IDS), torch.tensor(IDS)
    held = [], []
    for number in range(12):
        np.testing.assert_allclose(ours(ids[0]).item(), theirs(ids[1]).item(), rtol=1e-5)
        for (table, w), made in zip((mine, their), held, strict=True):
            made += [table.detach(), w.detach().numpy(), w.grad] if number % 3 else [table * 1, w.detach().numpy()[:4]]
            made += [w.detach()[:, 3], w.data.clone(), w.grad.numpy()]
            if number == 8:  # a value from outside
                w.data = w.detach() * 2
    for found, expected in zip(*held, strict=True):
        if not isinstance(found, np.ndarray):
            found, expected = found.detach().numpy(), expected.detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_gradients_that_are_changed_outside():
    (ours, _, w), (theirs, _, their) = stepper(cc, cc.jit), stepper(torch, lambda step: step)
    for number in range(6):
        ours(cc.tensor(IDS))
        theirs(torch.tensor(IDS))
        np.testing.assert_allclose(w.grad.numpy(), their.grad.numpy(), rtol=1e-4, atol=1e-6)
        if number > 2:
            w.grad.mul_(3)  # as clipping does


def test_arrays_are_written_again(arrays):
    step, _, w = stepper(cc, cc.jit)
    ids, addresses = cc.tensor(IDS), []
    for _ in range(9):
        step(ids)
        addresses.append([each.array().ctypes.data for each in (w, w.grad)])
    assert addresses[4] == addresses[6] == addresses[8]
    assert addresses[5] == addresses[7]
    assert (addresses[4][0] == addresses[5][0]) == (arrays == "in place")


def test_a_step_that_is_interrupted_at_its_end_counts(arrays, monkeypatch):
    (ours, *mine), (theirs, *their) = stepper(cc, cc.jit), stepper(torch, lambda step: step)
    walk = Workspace.walk

    def interrupted(self, start, stop, *arguments):
        walk(self, start, stop, *arguments)
        if stop == self.plan.steps[-1].stop:
            raise KeyboardInterrupt

    for number in range(8):
        monkeypatch.setattr(Workspace, "walk", interrupted if number == 5 else walk)
        with pytest.raises(KeyboardInterrupt) if number == 5 else contextlib.nullcontext():
            ours(cc.tensor(IDS))
        theirs(torch.tensor(IDS))
        for each, other in zip(mine, their, strict=True):
            np.testing.assert_allclose(each.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("failing", [0, 1, 4])
def test_a_step_that_fails_is_not_counted(arrays, failing):
    (ours, *mine), (theirs, *their) = stepper(cc, cc.jit), stepper(torch, lambda step: step)
    for number in range(6):
        if number == failing:
            before = [each.detach().numpy().copy() for each in mine]
            with pytest.raises((cc.Error, IndexError)):
                ours(cc.tensor(np.where(IDS == 3, 99, IDS)))
            for each, value in zip(mine, before, strict=True):
                np.testing.assert_array_equal(each.detach().numpy(), value)
        ours(cc.tensor(IDS))
        theirs(torch.tensor(IDS))
    for each, other in zip(mine, their, strict=True):
        np.testing.assert_allclose(each.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["State.settle", "OverwrittenState.settle"])
def test_an_interrupt_between_states_leaves_all_of_one_step(arrays, monkeypatch, name):
    """Both parameters and the optimizer's state have the values after the step, as torch's after as many steps."""
    (ours, *mine), (theirs, *their) = stepper(cc, cc.jit), stepper(torch, lambda step: step)
    kind = getattr(resident_state, name.partition(".")[0])
    settle, calls = kind.settle, []

    def interrupted(self, turn):
        calls.append(turn)
        if len(calls) == 9:
            raise KeyboardInterrupt
        settle(self, turn)

    monkeypatch.setattr(kind, "settle", interrupted)
    for _ in range(6):
        with contextlib.suppress(KeyboardInterrupt):
            ours(cc.tensor(IDS))
        theirs(torch.tensor(IDS))
    for each, other in zip(mine, their, strict=True):
        np.testing.assert_allclose(each.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)
