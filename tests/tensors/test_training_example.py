"""The published example of linear regression: losses as printed there, and as torch's."""

import candle_convert as cc
import numpy as np
import torch

PUBLISHED = [32.9661, 22.2148, 15.1691, 10.4938, 7.3743, 5.2876, 3.8900, 2.9533, 2.3252, 1.9036]
X = [[2.0, 1.0], [7.0, 4.0], [-4.0, 12.0], [5.0, 8.0]]
WEIGHT, BIAS, RATE = [[1.60755823, 0.82880319]], [0.59055568], 0.004


def losses(m):
    """Ten steps of stochastic gradient descent in torch's words."""
    x = m.tensor(X)
    y = 3 * x[:, :1] + x[:, 1:] - 2
    weight, bias = m.tensor(WEIGHT, requires_grad=True), m.tensor(BIAS, requires_grad=True)
    found = []
    for _ in range(10):
        loss = ((x @ weight.T + bias - y) ** 2).mean()
        loss.backward()
        with m.no_grad():
            weight -= RATE * weight.grad
            bias -= RATE * bias.grad
        weight.grad = bias.grad = None
        found.append(loss.item())
    return found


def test_losses():
    found = losses(cc)
    np.testing.assert_allclose(found, losses(torch), rtol=2e-6)
    np.testing.assert_allclose(found, PUBLISHED, atol=1e-4)
