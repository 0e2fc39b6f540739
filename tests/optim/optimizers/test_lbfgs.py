"""LBFGS: the losses of torch's, step by step."""

import candle_convert as cc
import numpy as np
import pytest
import torch


@pytest.mark.parametrize("options", [{}, {"lr": 0.3, "history_size": 3, "max_iter": 7}])
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


def test_what_it_does_not_take():
    w = cc.zeros(2, requires_grad=True)
    with pytest.raises(cc.Error, match="line_search_fn='strong_wolfe' is not supported"):
        cc.optim.LBFGS([w], line_search_fn="strong_wolfe")
    with pytest.raises(cc.Error, match="needs a closure"):
        cc.optim.LBFGS([w]).step()
