"""Vectors of parameters, gradient clipping and padded sequences against torch."""

import candle_convert as cc
import numpy as np
import pytest
import torch


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clipping(norm_type):
    found = []
    for m in (cc, torch):
        tensors = [m.tensor([[3.0, -4.0]], requires_grad=True), m.tensor([1.0, 12.0], requires_grad=True)]
        sum((each * each).sum() for each in tensors).backward()
        total = m.nn.utils.clip_grad_norm_(tensors, 2.0, norm_type)
        m.nn.utils.clip_grad_value_(tensors, 1.0)
        found.append([float(total), *[each.grad.numpy() for each in tensors]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_vectors():
    layer = cc.nn.Linear(3, 2)
    vector = cc.nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (8,)
    cc.nn.utils.vector_to_parameters(cc.arange(8).float(), layer.parameters())
    assert layer.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert layer.bias.tolist() == [6, 7]
    with pytest.raises(cc.UsageError, match="8 elements"):
        cc.nn.utils.vector_to_parameters(cc.zeros(9), layer.parameters())


@pytest.mark.parametrize("batch_first", [False, True])
def test_sequences(batch_first):
    arrays = [np.full((length, 2), length, np.float32) for length in (3, 1, 2)]
    found = []
    for m in (cc, torch):
        padded = m.nn.utils.rnn.pad_sequence([m.tensor(each) for each in arrays], batch_first, -1.0)
        whole = padded.numpy().copy()  # torch transposes it in place
        parts = m.nn.utils.rnn.unpad_sequence(padded, m.tensor([3, 1, 2]), batch_first)
        found.append([whole, *[each.numpy() for each in parts]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert cc.nn.utils.rnn.length_mask(cc.tensor([1, 2])).tolist() == [[False, True], [False, False]]


def packed(m, enforce_sorted):
    lengths = [4, 2, 2, 1] if enforce_sorted else [2, 4, 1, 2]
    x = np.random.default_rng(2).standard_normal((4, 4, 3)).astype(np.float32)
    given = m.tensor(x, requires_grad=True)
    return given, m.nn.utils.rnn.pack_padded_sequence(given, m.tensor(lengths), True, enforce_sorted)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("has_gradients", [True, False])
def test_packed_sequences(kind, enforce_sorted, has_gradients):
    """Hidden and last states of both directions, and gradients, are torch's; padding has no part in them."""
    theirs = getattr(torch.nn, kind)(3, 5, num_layers=2, bidirectional=True)
    ours = getattr(cc.nn, kind)(3, 5, num_layers=2, bidirectional=True)
    ours.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    found = []
    for m, layer in ((cc, ours), (torch, theirs)):
        given, sequence = packed(m, enforce_sorted)
        with m.set_grad_enabled(has_gradients):
            output, states = layer(sequence)
            x, lengths = m.nn.utils.rnn.pad_packed_sequence(
                output, batch_first=True, padding_value=-1.0, total_length=5
            )
        last = states if kind == "LSTM" else (states,)
        arrays = [sequence.data, sequence.batch_sizes, output.data, x, lengths, *last]
        if has_gradients:
            ((x**2).sum() + (last[0] ** 3).sum()).backward()
            arrays += [given.grad, layer.weight_hh_l0_reverse.grad]
        found.append([each.detach().numpy() for each in arrays])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_packing():
    rnn, arrays = cc.nn.utils.rnn, [cc.ones(2, 3), cc.zeros(4, 3)]
    parts = rnn.unpack_sequence(rnn.pack_sequence(arrays, enforce_sorted=False))
    assert [each.tolist() for each in parts] == [each.tolist() for each in arrays]
    for lengths in ([2, 4], [4, 0], [4], [5, 4]):
        with pytest.raises(cc.UsageError, match="E-NN-LENGTH"):
            rnn.pack_padded_sequence(cc.zeros(4, 2, 3), lengths)
    with pytest.raises(cc.UsageError, match="at least 4"):
        rnn.pad_packed_sequence(rnn.pack_sequence(arrays[::-1]), total_length=3)
