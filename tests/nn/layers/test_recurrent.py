"""Recurrent layers against torch: with gradients step by step, without them as one operator."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(4)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def pair(name, *arguments, **settings):
    layers = []
    for m in (cc, torch):
        m.manual_seed(3)
        layers.append(getattr(m.nn, name)(*arguments, **settings))
    ours, theirs = layers
    assert repr(ours) == repr(theirs)
    for (key, one), (other_key, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert key == other_key
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-6, atol=1e-7)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def flat(found):
    return [found] if not isinstance(found, tuple) else [each for item in found for each in flat(item)]


def results(m, layer, x, state):
    arrays = [m.tensor(each, requires_grad=True) for each in (x, *state)]
    hx = None if not state else tuple(arrays[1:]) if len(state) == 2 else arrays[1]
    found = flat(layer(arrays[0], hx))
    sum((each * each).sum() for each in found).backward()
    grads = [each.grad for each in (*arrays, *layer.parameters())]
    for each in layer.parameters():
        each.grad = None
    with m.no_grad():
        plain = flat(layer(arrays[0], hx))
    return [each.detach().numpy() for each in (*found, *grads, *plain)]


def compare(layers, x, *state):
    for one, other in zip(results(cc, layers[0], x, state), results(torch, layers[1], x, state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, (5, 3, 4)),
        ({"num_layers": 2, "bidirectional": True, "batch_first": True}, (3, 5, 4)),
        ({"bias": False}, (5, 4)),
    ],
)
def test_layers(name, settings, shape):
    layers = pair(name, 4, 6, **settings)
    directions = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
    first = (directions, 3, 6) if len(shape) == 3 else (directions, 6)
    compare(layers, normal(*shape))
    compare(layers, normal(*shape), *[normal(*first) for _ in range(1 + (name == "LSTM"))])


def test_projections_and_relu():
    compare(pair("LSTM", 4, 6, 2, proj_size=3), normal(5, 3, 4), normal(2, 3, 3), normal(2, 3, 6))
    compare(pair("RNN", 4, 6, nonlinearity="relu"), normal(5, 3, 4))


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(name):
    layers = pair(name, 4, 6)
    compare(layers, normal(3, 4))
    compare(layers, normal(3, 4), *[normal(3, 6) for _ in range(1 + (name == "LSTMCell"))])


def test_dropout_between_layers():
    layer = cc.nn.GRU(4, 6, 2, dropout=0.5)
    x = cc.rand(5, 3, 4)
    assert not cc.equal(layer(x)[0].detach(), layer(x)[0].detach())
    layer.eval()
    assert cc.equal(layer(x)[0].detach(), layer(x)[0].detach())


@pytest.mark.parametrize("shape", [(5, 3, 3), (5,), (0, 3, 4)])
def test_inputs_that_do_not_fit(shape):
    with pytest.raises(cc.UsageError, match="E-TENSOR-SHAPE"):
        cc.nn.LSTM(4, 6)(cc.zeros(*shape))
    with pytest.raises(cc.UsageError, match="E-TENSOR-SHAPE"):
        cc.nn.LSTM(4, 6)(cc.zeros(5, 3, 4), (cc.zeros(1, 3, 6), cc.zeros(1, 2, 6)))
