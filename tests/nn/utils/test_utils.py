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
