"""SparseAdam changes the rows that torch's changes, in the same way."""

import candle_convert as cc
import numpy as np
import pytest
import torch

BATCHES = [[1, 3], [0, 3, 3], [1], [2, 4]]


def _trained(t):
    t.manual_seed(0)
    table = t.nn.Embedding(6, 3, sparse=True)
    optimizer = t.optim.SparseAdam(list(table.parameters()), lr=0.1, betas=(0.8, 0.95))
    for batch in BATCHES:
        optimizer.zero_grad()
        (table(t.tensor(batch)) - 1).square().sum().backward()
        optimizer.step()
    return table.weight.detach().numpy()


def test_rows():
    np.testing.assert_allclose(_trained(cc), _trained(torch), 1e-5, 1e-6)


def test_options():
    with pytest.raises(cc.UsageError, match="betas"):
        cc.optim.SparseAdam([cc.zeros(1, requires_grad=True)], betas=(2, 0.9))
