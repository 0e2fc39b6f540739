"""Rows that are added by index, against NumPy, and the gradient of an embedding against torch."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("shape", [(9, 200), (5,), (7, 3, 40)])
def test_sums_of_rows(shape):
    places = RNG.integers(-shape[0], shape[0], (4, 6, 1))
    x, updates = (RNG.standard_normal(each).astype(np.float32) for each in (shape, (4, 6, *shape[1:])))
    natively("ScatterND", case(x, places, updates, reduction="add"), rtol=1e-5, atol=1e-5)


def test_gradients_of_rows_and_parts():
    table, ids = RNG.standard_normal((30, 128)).astype(np.float32), RNG.integers(0, 30, (20, 16))
    found = []
    for m in (cc, torch):
        weight = m.tensor(table, requires_grad=True)

        def step(m=m, weight=weight):
            rows = weight[m.tensor(ids)]
            (rows[:, 1:9, :-1].sin() * rows[:, :8, 1:]).sum().backward()

        (cc.jit(step) if m is cc else step)()
        found.append(weight.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def test_sums_of_elements():
    places = RNG.integers(-50, 50, 300)
    x, updates = (RNG.standard_normal(count).astype(np.float32) for count in (50, 300))
    natively("ScatterElements", case(x, places, updates, reduction="add"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sums_of_elements_along_an_axis(axis):
    x, shape = RNG.standard_normal((4, 5, 6)).astype(np.float32), [4, 5, 6]
    shape[axis] = 9
    places, updates = RNG.integers(0, x.shape[axis], shape), RNG.standard_normal(shape).astype(np.float32)
    natively("ScatterElements", case(x, places, updates, reduction="add", axis=axis), rtol=1e-5, atol=1e-5)
    found = [m.tensor(x).scatter_add(axis, m.tensor(places), m.tensor(updates)).numpy() for m in (cc, torch)]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)


def test_gradient_of_elements_that_are_picked():
    x, ids = RNG.standard_normal((6, 40)).astype(np.float32), RNG.integers(0, 40, (6, 3))
    found = []
    for m in (cc, torch):
        scores = m.tensor(x, requires_grad=True)

        def step(m=m, scores=scores):
            scores.sin().gather(1, m.tensor(ids)).exp().sum().backward()

        (cc.jit(step) if m is cc else step)()
        found.append(scores.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
