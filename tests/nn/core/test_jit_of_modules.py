"""Training steps of modules under jit: parameters, running statistics, dropout, modes, clipping."""

import candle_convert as cc
import numpy as np
import pytest
import torch


def network(m, dropout=0.0):
    return m.nn.Sequential(
        m.nn.Conv2d(1, 4, 3, padding=1), m.nn.BatchNorm2d(4, momentum=None), m.nn.ReLU(), m.nn.MaxPool2d(2),
        m.nn.Dropout(dropout), m.nn.Flatten(), m.nn.Linear(36, 5),
    )  # fmt: skip


def step_of(m, net):
    def step(x, y):
        net.zero_grad()
        loss = m.nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        m.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        with m.no_grad():
            for p in net.parameters():
                p -= 0.3 * p.grad
        return loss.detach()

    return step


def batches(m):
    rng = np.random.default_rng(0)
    for _ in range(4):
        yield m.tensor(rng.standard_normal((6, 1, 6, 6)).astype(np.float32)), m.tensor(rng.integers(0, 5, 6))


def test_running_statistics_and_clipping():
    ours, theirs = network(cc), network(torch)
    ours.load_state_dict(theirs.state_dict())
    step, reference = cc.jit(step_of(cc, ours)), step_of(torch, theirs)
    for (x, y), (their_x, their_y) in zip(batches(cc), batches(torch), strict=True):
        np.testing.assert_allclose(step(x, y).item(), reference(their_x, their_y).item(), rtol=1e-4)
    for (name, one), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)
    assert ours[1].num_batches_tracked.item() == 4


def test_dropout_is_drawn_at_each_call():
    net = network(cc, 0.5)
    net.requires_grad_(False)
    forward = cc.jit(lambda x: net(x))
    x = next(batches(cc))[0]
    assert not cc.equal(forward(x), forward(x))
    cc.manual_seed(1)
    net[1].reset_running_stats()
    jitted = [forward(x).numpy() for _ in range(2)]
    cc.manual_seed(1)
    net[1].reset_running_stats()
    np.testing.assert_allclose(jitted, [net(x).numpy() for _ in range(2)], rtol=1e-4, atol=1e-5)
    net.eval()
    assert cc.equal(forward(x), forward(x))


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers(name):
    ours, theirs = getattr(cc.nn, name)(3, 4), getattr(torch.nn, name)(3, 4)
    ours.load_state_dict(theirs.state_dict())

    def step_of(m, net):
        def step(x):
            net.zero_grad()
            loss = net(x)[0].square().mean()
            loss.backward()
            with m.no_grad():
                for p in net.parameters():
                    p -= p.grad
            return loss.detach()

        return step

    step, reference = cc.jit(step_of(cc, ours)), step_of(torch, theirs)
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    for _ in range(3):
        np.testing.assert_allclose(step(cc.tensor(x)).item(), reference(torch.tensor(x)).item(), rtol=1e-5)


def test_values_that_are_needed_while_tracing():
    bag = cc.nn.EmbeddingBag(4, 2)
    with pytest.raises(cc.UsageError, match="E-TENSOR-TRACE"):
        cc.jit(lambda rows, offsets: bag(rows, offsets))(cc.tensor([0, 1]), cc.tensor([0]))


def test_copies_and_pickles():
    import copy
    import pickle

    net = network(cc)
    net[0].weight.requires_grad_(False)
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert repr(made) == repr(net)
        for (name, one), (other_name, other) in zip(made.named_parameters(), net.named_parameters(), strict=True):
            assert name == other_name
            assert one is not other
            assert one.requires_grad == other.requires_grad
            assert isinstance(one, cc.nn.Parameter)
            np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())
        with cc.no_grad():
            made[6].bias.fill_(7)
        assert net[6].bias.tolist() != [7] * 5
