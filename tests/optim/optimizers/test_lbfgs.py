"""LBFGS: the losses of torch's, step by step."""

import candle_convert as cc
import numpy as np
import pytest
import torch

OPTIONS = [
    {}, {"lr": 0.3, "history_size": 3, "max_iter": 7}, {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "lr": 40.0, "max_iter": 5}, {"line_search_fn": "strong_wolfe", "lr": 0.05},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_losses_are_torchs(options):
    rng = np.random.default_rng(0)
    a, b, start = rng.normal(size=(12, 5)), rng.normal(size=12), rng.normal(size=(5,))

    def losses(m):
        w = m.tensor(start, requires_grad=True)
        optimizer = m.optim.LBFGS([w], **options)

        def closure():
            optimizer.zero_grad()
            loss = ((m.tensor(a) @ w - m.tensor(b)) ** 2).mean() + (w.sin() ** 2).sum() * 0.1
            loss.backward()
            return loss

        found = [float(optimizer.step(closure)) for _ in range(4)]
        return [*found, *w.tolist()]

    np.testing.assert_allclose(losses(cc), losses(torch), rtol=1e-6)


def test_rosenbrocks_valley():
    def path(m):
        w = m.tensor([-1.5, 2.0, 0.5], dtype=m.float64, requires_grad=True)
        optimizer = m.optim.LBFGS([w], line_search_fn="strong_wolfe", max_iter=12)
        places = []

        def closure():
            optimizer.zero_grad()
            loss = (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum()
            loss.backward()
            places.append(w.tolist())
            return loss

        for _ in range(9):
            optimizer.step(closure)
        return places

    ours, theirs = path(cc), path(torch)
    assert len(ours) == len(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours[-1], 1, atol=1e-4)


def test_what_it_does_not_take():
    w = cc.zeros(2, requires_grad=True)
    with pytest.raises(cc.Error, match="line_search_fn is 'armijo'"):
        cc.optim.LBFGS([w], line_search_fn="armijo")
    with pytest.raises(cc.Error, match="needs a closure"):
        cc.optim.LBFGS([w]).step()
