"""The time steps of LSTM, GRU and RNN in training and their gradients, native, against torch."""

import numpy as np
import pytest
import torch
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

BATCH = 9
GATES = {"LSTM": 4, "projected": 4, "GRU": 3, "Tanh": 1, "Relu": 1}


class Steps:
    """Random inputs of one direction in f64, and torch's results and gradients."""

    def __init__(self, kind, times, hidden, varying, reverse):
        rng = np.random.default_rng(0)
        size, columns = 3 if kind == "projected" else hidden, GATES[kind] * hidden

        def normal(*shape):
            return torch.tensor(rng.standard_normal(shape), requires_grad=True)

        self.kind = kind
        self.added, self.r, self.h = normal(times, BATCH, columns), normal(columns, size), normal(BATCH, size)
        self.c, self.bias, self.projection = normal(BATCH, hidden), normal(columns), normal(size, hidden)
        self.lengths = rng.integers(0, times + 1, BATCH).astype(np.int32) if varying else None
        hiddens, cells, gates = [None] * times, [None] * times, [None] * times
        h, c = self.h, self.c
        for time in reversed(range(times)) if reverse else range(times):
            then, state, gates[time] = self.step(self.added[time], h, c)
            runs = np.ones(BATCH, bool) if self.lengths is None else self.lengths > time
            runs = torch.tensor(runs)[:, None]
            h, c = torch.where(runs, then, h), torch.where(runs, state, c)
            hiddens[time], cells[time] = h, c
        self.hidden, self.cells, self.gates = map(torch.stack, (hiddens, cells, gates))
        self.by_hidden, self.by_cells = normal(*self.hidden.shape), normal(*self.cells.shape)
        ((self.hidden * self.by_hidden).sum() + (self.cells * self.by_cells).sum()).backward()

    def step(self, added, h, c):
        """The next states, and the gates that are kept."""
        product = h @ self.r.T
        if self.kind in ("Tanh", "Relu"):
            return getattr(torch, self.kind.lower())(added + product), c, added
        if self.kind == "GRU":
            r, z, n = added.chunk(3, 1)
            by_r, by_z, inside = (product + self.bias).chunk(3, 1)
            r, z = (r + by_r).sigmoid(), (z + by_z).sigmoid()
            n = (n + r * inside).tanh()
            return (1 - z) * n + z * h, c, torch.cat([r, z, n, inside], 1)
        i, f, g, o = (added + product).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        return h @ self.projection.T if self.kind == "projected" else h, c, torch.cat([i, f, g, o], 1)


def arrays(*tensors):
    return [None if each is None else each.detach().numpy().astype(np.float32) for each in tensors]


def compared(operator, inputs, expected, **attributes):
    while inputs[-1] is None:
        inputs.pop()
    example = case(*inputs, **attributes, outputs=len(expected))
    found = natively(operator, example, domain="candle", rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(found, arrays(*expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("times", "hidden", "varying", "reverse"), [(4, 5, False, 0), (4, 40, True, 1), (1, 33, False, 1), (3, 16, True, 0)]
)
@pytest.mark.parametrize("kind", GATES)
def test_steps(kind, times, hidden, varying, reverse):
    s = Steps(kind, times, hidden, varying, reverse)
    lengths, grads = s.lengths, [s.added.grad, s.h.grad]
    added, r, h, c, bias, hidden, cells, gates = arrays(s.added, s.r, s.h, s.c, s.bias, s.hidden, s.cells, s.gates)
    by_hidden, by_cells = arrays(s.by_hidden, s.by_cells)
    if kind in ("Tanh", "Relu"):
        options = {"activation": kind, "reverse": reverse}
        compared("RNNSteps", [added, r, h, lengths], [s.hidden], **options)
        compared("RNNStepsGrad", [hidden, r, by_hidden, lengths], grads, **options)
    elif kind == "GRU":
        compared("GRUSteps", [added, r, h, bias, lengths], [s.hidden, s.gates], reverse=reverse)
        by_product = s.added.grad.clone()
        columns = by_product.shape[2] // 3
        by_product[..., 2 * columns :] *= s.gates[..., :columns]
        inputs = [gates, hidden, h, r, by_hidden, None, lengths]
        compared("GRUStepsGrad", inputs, [grads[0], by_product, grads[1]], reverse=reverse)
        np.testing.assert_allclose(by_product.sum((0, 1)).detach(), s.bias.grad, rtol=1e-9, atol=1e-9)
    else:
        projection = arrays(s.projection)[0] if kind == "projected" else None
        compared("LSTMSteps", [added, r, h, c, lengths, projection], [s.hidden, s.cells, s.gates], reverse=reverse)
        inputs = [gates, cells, c, r, by_hidden, by_cells, None, lengths, projection]
        compared("LSTMStepsGrad", inputs, [*grads, s.c.grad], reverse=reverse)
