"""Cells of RNN, GRU and LSTM: one sequence at one time, from what inputs and states add to the gates to the next state."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner
from ...runtime.native import f32
from ...runtime.scalar_math import log1p
from ...runtime.simd import LANES, load, room, select, store
from ..math.lane_kernel import exp16, load_single, sigmoid16, store_single, tanh16
from .recurrent import ACTIVATIONS

KINDS = {name: number for number, name in enumerate(ACTIVATIONS)}
RELU, TANH, SIGMOID, SOFTSIGN, SOFTPLUS, AFFINE, SCALED_TANH, HARD_SIGMOID, LEAKY_RELU, THRESHOLDED_RELU, ELU = range(len(KINDS))


@inner
def _softplus(x: Any) -> Any:
    spare = room(np.float32, 1)
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


@inner
def lstm_row(added: Any, gates: Any, hidden: Any, h: Any, c: Any, peep: Any, table: Any, clip: Any, coupled: Any) -> None:
    """Gates i, o, f and c; peepholes i, o and f."""
    step = 4 * hidden
    for j in range(0, 4 * hidden, 4 * LANES):
        state = load_single(c + j)
        i = load_single(added + j) + load_single(gates + j)
        o = load_single(added + step + j) + load_single(gates + step + j)
        new = load_single(added + 3 * step + j) + load_single(gates + 3 * step + j)
        if peep != 0:
            i = i + load_single(peep + j) * state
        i = activated(table, 0, i, clip)
        if coupled != 0:
            forget = np.float32(1) - i
        else:
            forget = load_single(added + 2 * step + j) + load_single(gates + 2 * step + j)
            if peep != 0:
                forget = forget + load_single(peep + 2 * step + j) * state
            forget = activated(table, 0, forget, clip)
        state = forget * state + i * activated(table, 1, new, clip)
        if peep != 0:
            o = o + load_single(peep + step + j) * state
        store_single(c + j, state)
        store_single(h + j, activated(table, 0, o, clip) * activated(table, 2, state, np.float32(np.inf)))


@inner
def gru_reset(added: Any, gates: Any, hidden: Any, h: Any, reset: Any, table: Any, clip: Any) -> None:
    """The state as the reset gate lets it through."""
    step = 4 * hidden
    for j in range(0, 4 * hidden, 4 * LANES):
        opened = activated(table, 0, load_single(added + step + j) + load_single(gates + step + j), clip)
        store_single(reset + j, opened * load_single(h + j))


@inner
def gru_row(added: Any, gates: Any, hidden: Any, h: Any, bias: Any, table: Any, clip: Any, linear: Any) -> None:
    """Gates z, r and h."""
    step = 4 * hidden
    for j in range(0, 4 * hidden, 4 * LANES):
        inside = load_single(gates + 2 * step + j)
        if linear != 0:
            opened = activated(table, 0, load_single(added + step + j) + load_single(gates + step + j), clip)
            inside = opened * (inside + load_single(bias + j))
        new = activated(table, 1, load_single(added + 2 * step + j) + inside, clip)
        update = activated(table, 0, load_single(added + j) + load_single(gates + j), clip)
        store_single(h + j, (np.float32(1) - update) * new + update * load_single(h + j))


@inner
def rnn_row(added: Any, gates: Any, hidden: Any, h: Any, table: Any, clip: Any) -> None:
    for j in range(0, 4 * hidden, 4 * LANES):
        store_single(h + j, activated(table, 0, load_single(added + j) + load_single(gates + j), clip))
