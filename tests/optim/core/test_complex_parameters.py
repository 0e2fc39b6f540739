"""Steps, saved states and gradient clipping of complex parameters are torch's."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_gradients import complex_array

START, TARGET = (complex_array(2, 3, dtype=np.complex128, seed=seed) for seed in (1, 2))
CASES = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}), ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "maximize": True}), ("Adagrad", {"lr": 0.1}), ("Adadelta", {}),
    ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5}), ("Rprop", {"lr": 0.1}), ("Adamax", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}), ("RAdam", {"lr": 0.1}), ("ASGD", {"lr": 0.1}), ("LBFGS", {"max_iter": 2}),
    ("LBFGS", {"max_iter": 3, "line_search_fn": "strong_wolfe"}),
]  # fmt: skip


def closure_of(parameter, target, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = ((parameter - target).abs() ** 2).sum() + (parameter * parameter).real.sum() * 0.3
        loss.backward()
        return loss

    return closure


def stepped(module, name, options, steps=3):
    parameter = module.nn.Parameter(module.tensor(START))
    optimizer = getattr(module.optim, name)([parameter], **options)
    for _ in range(steps):
        optimizer.step(closure_of(parameter, module.tensor(TARGET), optimizer))
    return parameter, optimizer


@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps(name, options):
    (ours, optimizer), (theirs, reference) = stepped(cc, name, options), stepped(torch, name, options)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
    states = reference.state_dict()["state"][0]
    for key, state in optimizer.state_dict()["state"][0].items():
        if hasattr(state, "detach") and key != "ro":
            np.testing.assert_allclose(state.detach().numpy(), states[key].numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ["Adam", "LBFGS"])
def test_saved_state(name):
    parameter, optimizer = stepped(cc, name, {})
    other = cc.nn.Parameter(cc.tensor(parameter.detach().numpy()))
    again = getattr(cc.optim, name)([other])
    again.load_state_dict(optimizer.state_dict())
    reference, expected = stepped(torch, name, {}, 4)
    again.step(closure_of(other, cc.tensor(TARGET), again))
    np.testing.assert_allclose(other.detach().numpy(), reference.detach().numpy(), rtol=1e-6)
    assert len(again.state_dict()["state"]) == len(expected.state_dict()["state"])


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clipping(norm):
    found = []
    for module in (cc, torch):
        parameter = module.nn.Parameter(module.tensor(START))
        parameter.grad = module.tensor(TARGET)
        total = module.nn.utils.clip_grad_norm_([parameter], 0.5, norm)
        found.append([total.item(), parameter.grad.numpy()])
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_rules_of_whole_matrices_refuse_them(name):
    with pytest.raises(cc.UsageError, match="E-OPTIM-PARAMS"):
        getattr(cc.optim, name)([cc.nn.Parameter(cc.tensor(START))])
