"""Spectral norm by a hook: weights and names are torch's."""

import candle_convert as cc
import pytest
import torch


def _trained(t):
    t.manual_seed(1)
    layer = t.nn.utils.spectral_norm(t.nn.Linear(4, 3))
    optimizer = t.optim.SGD(layer.parameters(), 0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = layer(t.ones(2, 4)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    names = list(layer.state_dict())
    layer.eval()
    losses.append(layer(t.ones(2, 4)).sum().item())
    t.nn.utils.remove_spectral_norm(layer)
    return [*losses, layer(t.ones(2, 4)).sum().item()], sorted(names), sorted(layer.state_dict())


def test_training():
    ours, theirs = _trained(cc), _trained(torch)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert ours[1:] == theirs[1:]


def test_without():
    with pytest.raises(cc.UsageError, match="not computed by spectral_norm"):
        cc.nn.utils.remove_spectral_norm(cc.nn.Linear(1, 1))
