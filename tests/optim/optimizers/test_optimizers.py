"""Optimizers against torch's: parameters and state after 50 steps, eager and under jit, with state carried across."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import optim

CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "maximize": True, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.1, "weight_decay": 0.01}),
    ("Adadelta", {"weight_decay": 0.01}),
    ("Adamax", {"weight_decay": 0.01}),
    ("NAdam", {"weight_decay": 0.01}),
    ("NAdam", {"weight_decay": 0.01, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.9, 0.9), "weight_decay": 0.01}),
    ("RAdam", {"decoupled_weight_decay": True, "weight_decay": 0.01}),
    ("RMSprop", {"weight_decay": 0.01}),
    ("RMSprop", {"momentum": 0.9, "lr": 1e-3}),
    ("Adafactor", {}),
    ("Adafactor", {"weight_decay": 0.1, "maximize": True}),
    ("ASGD", {"lambd": 1e-2, "t0": 20, "weight_decay": 0.01}),
    ("ASGD", {"maximize": True}),
    ("Rprop", {"lr": 1e-3}),
    ("Rprop", {"etas": (0.4, 1.1), "step_sizes": (1e-5, 1e-2), "maximize": True}),
    ("AdamW", {"foreach": False}),
    ("Muon", {}),
    ("Muon", {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options in CASES]
SHAPES = [(6, 3), (3,), (3, 4)]


def begun(m, name, options, dtype="float32"):
    """An optimizer and its parameters."""
    rng = np.random.default_rng(0)
    shapes = [shape for shape in SHAPES if len(shape) == 2 or name != "Muon"]
    params = [m.tensor(rng.standard_normal(s), dtype=getattr(m, dtype), requires_grad=True) for s in shapes]
    made = torch.optim if m is torch else optim
    return getattr(made, name)(params, **options), params


def stepping(m, optimizer, params, wrap=lambda f: f):
    """A function that makes a step, and returns the loss before it."""
    rng = np.random.default_rng(1)
    x = m.tensor(rng.standard_normal((8, 6)), dtype=params[0].dtype)

    def step():
        optimizer.zero_grad()
        hidden = x @ params[0]
        if len(params) == 3:
            hidden = (hidden + params[1]).tanh()
        loss = (hidden @ params[-1]).sin().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return wrap(step)


def compare(optimizer, params, their_optimizer, theirs, tolerance):
    for ours, their in zip(params, theirs, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), their.detach().numpy(), rtol=0, atol=tolerance)
    state, their_state = optimizer.state_dict()["state"], their_optimizer.state_dict()["state"]
    assert state.keys() == their_state.keys()
    for number in state:
        kept = {name: value for name, value in their_state[number].items() if value is not None}
        assert state[number].keys() == kept.keys()
        for name, value in state[number].items():
            np.testing.assert_allclose(value.numpy(), kept[name].numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_fifty_steps(name, options):
    their_optimizer, theirs = begun(torch, name, options)
    their_step = stepping(torch, their_optimizer, theirs)
    optimizer, params = begun(cc, name, options)
    step = stepping(cc, optimizer, params)
    for _ in range(50):
        np.testing.assert_allclose(step().item(), their_step().item(), rtol=0, atol=1e-6)
    compare(optimizer, params, their_optimizer, theirs, 1e-6)


@pytest.mark.parametrize(
    ("name", "options"), [("RMSprop", {"momentum": 0.9, "centered": True}), ("Adam", {}), ("Adafactor", {})]
)
def test_f64(name, options):
    """Cancellation in ``v - m ** 2`` of centered RMSprop hides errors of f32."""
    their_optimizer, theirs = begun(torch, name, options, "float64")
    optimizer, params = begun(cc, name, options, "float64")
    step, their_step = stepping(cc, optimizer, params), stepping(torch, their_optimizer, theirs)
    for _ in range(50):
        np.testing.assert_allclose(step().item(), their_step().item(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "options"), CASES[1:9:3] + CASES[9:12:2], ids=IDS[1:9:3] + IDS[9:12:2])
def test_jit_with_a_schedule(name, options):
    """One trace serves all steps: learning rates, bias corrections and the first step of momentum are inputs."""
    traced = 0

    def counting(step):
        def counted():
            nonlocal traced
            traced += 1
            return step()

        return cc.jit(counted)

    their_optimizer, theirs = begun(torch, name, options)
    optimizer, params = begun(cc, name, options)
    step, their_step = stepping(cc, optimizer, params, counting), stepping(torch, their_optimizer, theirs)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    their_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(their_optimizer, 20)
    for _ in range(20):
        np.testing.assert_allclose(step().item(), their_step().item(), rtol=0, atol=1e-6)
        schedule.step()
        their_schedule.step()
    compare(optimizer, params, their_optimizer, theirs, 1e-6)
    assert traced == 1


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_state_goes_both_ways(name, options):
    """After ten steps each library goes on from the other's state."""
    their_optimizer, theirs = begun(torch, name, options)
    optimizer, params = begun(cc, name, options)
    step, their_step = stepping(cc, optimizer, params), stepping(torch, their_optimizer, theirs)
    for _ in range(10):
        step()
        their_step()
    state, their_state = optimizer.state_dict(), their_optimizer.state_dict()
    optimizer, _ = begun(cc, name, {})
    optimizer.param_groups[0]["params"] = params
    optimizer.load_state_dict(their_state)
    tensors = {n: {k: torch.tensor(v.numpy()) for k, v in each.items()} for n, each in state["state"].items()}
    their_optimizer = getattr(torch.optim, name)(theirs)
    their_optimizer.load_state_dict({**state, "state": tensors})
    step, their_step = stepping(cc, optimizer, params), stepping(torch, their_optimizer, theirs)
    for _ in range(10):
        np.testing.assert_allclose(step().item(), their_step().item(), rtol=0, atol=1e-6)


def test_state_loaded_under_jit():
    """A trace sees state and counters that are loaded after it was made."""
    optimizer, params = begun(cc, "Adam", {})
    step = stepping(cc, optimizer, params, cc.jit)
    start = [each.detach().numpy().copy() for each in params]
    step()
    saved = {
        **optimizer.state_dict(),
        "state": {
            n: {k: v.numpy().copy() for k, v in each.items()} for n, each in optimizer.state_dict()["state"].items()
        },
    }
    first = [step().item() for _ in range(3)]
    optimizer.load_state_dict(saved)
    for each, value in zip(params, start, strict=True):
        each.data = cc.from_numpy(value)
    their_optimizer, theirs = begun(torch, "Adam", {})
    their_step = stepping(torch, their_optimizer, theirs)
    their_step()
    for each, value in zip(theirs, start, strict=True):
        each.data = torch.from_numpy(value)
    found, expected = [step().item() for _ in range(3)], [their_step().item() for _ in range(3)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert found != first


def test_lion():
    """Against the paper's formula in f64."""
    rng = np.random.default_rng(2)
    value, slopes = rng.standard_normal(5), rng.standard_normal((10, 5))
    p = cc.tensor(value, dtype=cc.float64, requires_grad=True)
    optimizer = optim.Lion([p], lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)
    mean = np.zeros(5)
    for slope in slopes:
        value = value * (1 - 0.01 * 0.1) - 0.01 * np.sign(0.8 * mean + 0.2 * slope)
        mean = 0.95 * mean + 0.05 * slope
        p.grad = cc.from_numpy(slope)
        optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), value, rtol=1e-12)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"].numpy(), mean, rtol=1e-12)
