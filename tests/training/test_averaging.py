"""Averaged models, their schedule, and batch norms that are computed anew, are torch's."""

import candle_convert as cc
import numpy as np
import pytest
import torch

BATCHES = np.random.default_rng(0).normal(size=(3, 8, 4)).astype(np.float32)


def _trained(t):
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Linear(4, 3), t.nn.BatchNorm1d(3), t.nn.Linear(3, 1))
    optimizer = t.optim.SGD(model.parameters(), 0.1)
    utils = t.optim.swa_utils
    averaged = [
        utils.AveragedModel(model), utils.AveragedModel(model, multi_avg_fn=utils.get_ema_multi_avg_fn(0.9)),
        utils.AveragedModel(model, avg_fn=utils.get_ema_avg_fn(0.5), use_buffers=True),
    ]  # fmt: skip
    schedule = utils.SWALR(optimizer, 0.01, anneal_epochs=2)
    found = []
    for batch in BATCHES:
        optimizer.zero_grad()
        model(t.tensor(batch)).square().mean().backward()
        optimizer.step()
        schedule.step()
        for each in averaged:
            each.update_parameters(model)
        found.append(optimizer.param_groups[0]["lr"])
    utils.update_bn([t.tensor(each) for each in BATCHES], averaged[0])
    for each in averaged:
        each.eval()
        found += each(t.tensor(BATCHES[0])).detach().numpy().reshape(-1).tolist()
    return found, list(averaged[0].state_dict()), averaged[0].n_averaged.item()


def test_training():
    ours, theirs = _trained(cc), _trained(torch)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4, abs=1e-6)
    assert ours[1:] == theirs[1:]


def test_linear_schedule():
    def rates(t):
        optimizer = t.optim.SGD([t.zeros(1, requires_grad=True)], 0.1)
        schedule = t.optim.swa_utils.SWALR(optimizer, swa_lr=[0.5], anneal_epochs=3, anneal_strategy="linear")
        found = []
        for _ in range(5):
            optimizer.step()
            schedule.step()
            found += schedule.get_last_lr()
        return found

    assert rates(cc) == pytest.approx(rates(torch))
    with pytest.raises(cc.UsageError, match="anneal_strategy"):
        cc.optim.swa_utils.SWALR(cc.optim.SGD([cc.zeros(1, requires_grad=True)], 0.1), 0.1, 1, "other")
