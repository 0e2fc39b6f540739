"""The time steps of an LSTM and their gradients, native, against torch."""

import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

TIMES, BATCH = 4, 9


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("hidden", [5, 40])
@pytest.mark.parametrize("varying", [False, True])
def test_steps(hidden, varying, reverse):
    rng = np.random.default_rng(0)
    shapes = (TIMES, BATCH, 4 * hidden), (4 * hidden, hidden), (BATCH, hidden), (BATCH, hidden)
    added, r, h, c = given = [torch.tensor(rng.standard_normal(each), requires_grad=True) for each in shapes]
    lengths = rng.integers(0, TIMES + 1, BATCH).astype(np.int32) if varying else None
    hiddens, cells, gates = [None] * TIMES, [None] * TIMES, [None] * TIMES
    for time in reversed(range(TIMES)) if reverse else range(TIMES):
        i, f, g, o = (added[time] + h @ r.T).chunk(4, 1)
        gates[time] = torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], 1)
        i, f, g, o = gates[time].chunk(4, 1)
        state = f * c + i * g
        runs = torch.tensor(np.ones((BATCH, 1), bool) if lengths is None else lengths[:, None] > time)
        h, c = torch.where(runs, o * state.tanh(), h), torch.where(runs, state, c)
        hiddens[time], cells[time] = h, c
    results = [torch.stack(each) for each in (hiddens, cells, gates)]
    by_hidden, by_cells = (torch.tensor(rng.standard_normal((TIMES, BATCH, hidden))) for _ in range(2))
    (results[0] * by_hidden + results[1] * by_cells).sum().backward()

    def arrays(*tensors):
        return [each.detach().numpy().astype(np.float32) for each in tensors]

    ends = [] if lengths is None else [lengths]
    example = case(*arrays(*given), *ends, reverse=reverse, outputs=3)
    found = natively("LSTMSteps", example, domain="candle", rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(found, arrays(*results), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    saved = arrays(results[2], results[1], given[3], given[1], by_hidden, by_cells)
    example = case(*saved, None, *ends, reverse=reverse, outputs=3)
    found = natively("LSTMStepsGrad", example, domain="candle", rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(found, (added, given[2], given[3]), strict=True):
        np.testing.assert_allclose(mine, theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
