"""Cells of RNN, GRU and LSTM: gates of one sequence at one time step to the next state."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32
from ...runtime.jit.range_kernel import inner
from ...runtime.simd.branchless_math import log1p
from ...runtime.simd.memory import exp16, load_f32, sigmoid16, store_f32, tanh16
from ...runtime.simd.vector import LANES, load, select, stack_array, store
from .recurrent import ACTIVATIONS

KINDS = {name: number for number, name in enumerate(ACTIVATIONS)}
RELU, TANH, SIGMOID, SOFTSIGN, SOFTPLUS, AFFINE, SCALED_TANH, HARD_SIGMOID, LEAKY_RELU, THRESHOLDED_RELU, ELU = range(
    len(KINDS)
)


@inner
def _softplus(x: Any) -> Any:
    spare = stack_array(np.float32, 1)
    size = exp16(-abs(x))
    store(spare, 0, size)
    for lane in range(LANES):
        spare[lane] = log1p(spare[lane])
    return select(x > np.float32(0), x, np.float32(0)) + load(spare, 0)


@inner
def _rare(kind: Any, x: Any, alpha: Any, beta: Any) -> Any:
    zero, one = np.float32(0), np.float32(1)
    if kind == SOFTSIGN:
        return x / (abs(x) + one)
    if kind == SOFTPLUS:
        return _softplus(x)
    if kind == AFFINE:
        return x * alpha + beta
    if kind == SCALED_TANH:
        return tanh16(x * beta) * alpha
    if kind == HARD_SIGMOID:
        y = x * alpha + beta
        y = select(y < zero, zero, y)
        return select(y > one, one, y)
    if kind == LEAKY_RELU:
        return select(x < zero, x * alpha, x)
    if kind == THRESHOLDED_RELU:
        return select(x > alpha, x, zero)
    return select(x < zero, (exp16(x) - one) * alpha, x)


@inner
def activated(table: Any, index: Any, x: Any, clip: Any) -> Any:
    """Activation `index` of a table of kind, alpha and beta for each; what goes into it is limited to [-clip, clip]."""
    row = f32(table + 12 * index)
    x = select(x > clip, clip, x)
    x = select(x < -clip, -clip, x)
    if row[0] == np.float32(SIGMOID):
        return sigmoid16(x)
    if row[0] == np.float32(TANH):
        return tanh16(x)
    if row[0] == np.float32(RELU):
        return select(x < np.float32(0), np.float32(0), x)
    return _rare(np.int64(row[0]), x, row[1], row[2])


def lstm_cell(activate: Any, bias_last: bool) -> Any:
    """The cell of LSTM with these activations; with `bias_last` a bias is added after the peepholes.

    Gates are i, o, f and c, peepholes i, o and f; `count` of the hidden units, whose first one the addresses are of.
    """

    @inner
    def row(
        added: Any,
        gates: Any,
        bias: Any,
        hidden: Any,
        count: Any,
        h: Any,
        c: Any,
        peep: Any,
        table: Any,
        clip: Any,
        coupled: Any,
    ) -> None:
        step = 4 * hidden
        for j in range(0, 4 * count, 4 * LANES):
            state = load_f32(c + j)
            i = load_f32(added + j) + load_f32(gates + j)
            o = load_f32(added + step + j) + load_f32(gates + step + j)
            new = load_f32(added + 3 * step + j) + load_f32(gates + 3 * step + j)
            if peep != 0:
                i = i + load_f32(peep + j) * state
            if bias_last:
                i = i + load_f32(bias + j)
                new = new + load_f32(bias + 3 * step + j)
            i = activate(table, 0, i, clip)
            if coupled != 0:
                forget = np.float32(1) - i
            else:
                forget = load_f32(added + 2 * step + j) + load_f32(gates + 2 * step + j)
                if peep != 0:
                    forget = forget + load_f32(peep + 2 * step + j) * state
                if bias_last:
                    forget = forget + load_f32(bias + 2 * step + j)
                forget = activate(table, 0, forget, clip)
            state = forget * state + i * activate(table, 1, new, clip)
            if peep != 0:
                o = o + load_f32(peep + step + j) * state
            if bias_last:
                o = o + load_f32(bias + step + j)
            store_f32(c + j, state)
            store_f32(h + j, activate(table, 0, o, clip) * activate(table, 2, state, np.float32(np.inf)))

    return row


lstm_row = lstm_cell(activated, bias_last=False)


@inner
def gru_reset(added: Any, gates: Any, hidden: Any, h: Any, reset: Any, table: Any, clip: Any) -> None:
    """The state as the reset gate lets it through."""
    step = 4 * hidden
    for j in range(0, 4 * hidden, 4 * LANES):
        opened = activated(table, 0, load_f32(added + step + j) + load_f32(gates + step + j), clip)
        store_f32(reset + j, opened * load_f32(h + j))


@inner
def gru_row(
    added: Any, gates: Any, hidden: Any, count: Any, h: Any, bias: Any, table: Any, clip: Any, linear: Any
) -> None:
    """Gates z, r and h; `count` as of `lstm_row`."""
    step = 4 * hidden
    for j in range(0, 4 * count, 4 * LANES):
        inside = load_f32(gates + 2 * step + j)
        if linear != 0:
            opened = activated(table, 0, load_f32(added + step + j) + load_f32(gates + step + j), clip)
            inside = opened * (inside + load_f32(bias + j))
        new = activated(table, 1, load_f32(added + 2 * step + j) + inside, clip)
        update = activated(table, 0, load_f32(added + j) + load_f32(gates + j), clip)
        store_f32(h + j, (np.float32(1) - update) * new + update * load_f32(h + j))


@inner
def rnn_row(added: Any, gates: Any, count: Any, h: Any, table: Any, clip: Any) -> None:
    for j in range(0, 4 * count, 4 * LANES):
        store_f32(h + j, activated(table, 0, load_f32(added + j) + load_f32(gates + j), clip))
