"""Parametrized weights, against torch: results, gradients, names, and steps of training."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.nn.utils import parametrizations as ours
from candle_convert.nn.utils import parametrize
from torch.nn.utils import parametrizations as theirs

LAYERS = {
    "linear": (lambda m: m.nn.Linear(4, 3), (2, 4)),
    "conv": (lambda m: m.nn.Conv1d(4, 3, 2), (2, 4, 5)),
    "transposed": (lambda m: m.nn.ConvTranspose1d(4, 3, 2), (2, 4, 5)),
}
KINDS = {
    "norm": (lambda m, layer: m.weight_norm(layer)),
    "norm of all": (lambda m, layer: m.weight_norm(layer, dim=None)),
    "spectral": (lambda m, layer: m.spectral_norm(layer, n_power_iterations=2)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_training(name, kind):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    their = KINDS[kind](theirs, make(torch))
    mine = KINDS[kind](ours, make(cc))
    assert list(mine.state_dict()) == list(their.state_dict())
    mine.load_state_dict({key: value.numpy() for key, value in their.state_dict().items()})
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    pairs = [(m, layer, m.optim.SGD(layer.parameters(), lr=0.1)) for m, layer in ((cc, mine), (torch, their))]
    for _ in range(3):
        losses = []
        for m, layer, optimizer in pairs:
            optimizer.zero_grad()
            loss = (layer(m.tensor(x)) ** 2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for key, value in their.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[key].numpy(), value.numpy(), rtol=1e-3, atol=1e-5)
    parametrize.remove_parametrizations(mine, "weight")
    torch.nn.utils.parametrize.remove_parametrizations(their, "weight")
    assert type(mine) is type(make(cc))
    assert sorted(mine.state_dict()) == sorted(their.state_dict())
    np.testing.assert_allclose(mine.weight.detach().numpy(), their.weight.detach().numpy(), rtol=1e-3, atol=1e-5)


def test_own_parametrizations():
    class Symmetric(cc.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

    layer = cc.nn.Linear(3, 3)
    before = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert layer.parametrizations.weight.original is before
    assert parametrize.is_parametrized(layer, "weight")
    np.testing.assert_array_equal(layer.weight.detach().numpy(), layer.weight.detach().numpy().T)
    with pytest.raises(cc.UsageError, match="Symmetric has no right_inverse"):
        layer.weight = cc.zeros(3, 3)
    with pytest.raises(cc.UsageError, match="has no parameter 'wait'"):
        parametrize.register_parametrization(layer, "wait", Symmetric())
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is before


def test_assignment_sets_the_originals():
    layer = ours.weight_norm(cc.nn.Linear(4, 2))
    layer.weight = cc.full((2, 4), 0.5)
    assert layer.parametrizations.weight.original0.flatten().tolist() == [1, 1]
    np.testing.assert_allclose(layer.weight.detach().numpy(), 0.5)


def test_cached_parametrizations_are_computed_once():
    def calls(t):
        class Counted(t.nn.Module):
            count = 0

            def forward(self, weight):
                Counted.count += 1
                return weight * 2

        layer = t.nn.Linear(2, 2)
        t.nn.utils.parametrize.register_parametrization(layer, "weight", Counted())
        Counted.count = 0
        with t.nn.utils.parametrize.cached():
            layer(layer(t.ones(1, 2)))
        before = Counted.count
        layer(layer(t.ones(1, 2)))
        return before, Counted.count

    assert calls(cc) == calls(torch)
