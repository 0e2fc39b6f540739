"""Cells of RNN, GRU and LSTM in training: one sequence at one time step, forwards and backwards.

Addresses are those of a sequence at a time; gates are in torch's order, `hidden` elements each.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.range_kernel import inner
from ...runtime.simd.memory import load_n, sigmoid16, store_n, tanh16
from ...runtime.simd.vector import LANES, select, splat


@inner
def increased(target: Any, more: Any, count: Any) -> None:
    for at in range(0, count, LANES):
        left = count - at
        store_n(target + 4 * at, load_n(target + 4 * at, left) + load_n(more + 4 * at, left), left)


@inner
def zeroed(target: Any, count: Any) -> None:
    for at in range(0, count, LANES):
        store_n(target + 4 * at, splat(np.float32(0)), count - at)


@inner
def lstm_step(added: Any, gates: Any, before: Any, cell: Any, state: Any, hidden: Any) -> None:
    """Gates, which hold the product of the state, are activated; the next states are written."""
    step = 4 * hidden
    for at in range(0, hidden, LANES):
        left, place = hidden - at, 4 * at
        i = sigmoid16(load_n(added + place, left) + load_n(gates + place, left))
        place += step
        f = sigmoid16(load_n(added + place, left) + load_n(gates + place, left))
        place += step
        g = tanh16(load_n(added + place, left) + load_n(gates + place, left))
        place += step
        o = sigmoid16(load_n(added + place, left) + load_n(gates + place, left))
        store_n(gates + place, o, left)
        store_n(gates + place - step, g, left)
        store_n(gates + place - 2 * step, f, left)
        store_n(gates + place - 3 * step, i, left)
        c = f * load_n(before + 4 * at, left) + i * g
        store_n(cell + 4 * at, c, left)
        store_n(state + 4 * at, o * tanh16(c), left)


@inner
def lstm_step_back(gates: Any, cell: Any, before: Any, by_h: Any, by_c: Any, grads: Any, hidden: Any) -> None:
    """The gradient by the gates before activation; `by_c` becomes that of the cell state before."""
    step, one = 4 * hidden, np.float32(1)
    for at in range(0, hidden, LANES):
        left, place = hidden - at, 4 * at
        i, f = load_n(gates + place, left), load_n(gates + place + step, left)
        g, o = load_n(gates + place + 2 * step, left), load_n(gates + place + 3 * step, left)
        size, grad = tanh16(load_n(cell + place, left)), load_n(by_h + place, left)
        through = load_n(by_c + place, left) + grad * o * (one - size * size)
        store_n(grads + place, through * g * i * (one - i), left)
        store_n(grads + place + step, through * load_n(before + place, left) * f * (one - f), left)
        store_n(grads + place + 2 * step, through * i * (one - g * g), left)
        store_n(grads + place + 3 * step, grad * size * o * (one - o), left)
        store_n(by_c + place, through * f, left)


@inner
def gru_step(added: Any, gates: Any, bias: Any, before: Any, state: Any, hidden: Any) -> None:
    """Gates, whose first three hold the product of the state, are activated; the third one as it was, with its bias,
    becomes the fourth. The next state is written."""
    step = 4 * hidden
    for at in range(0, hidden, LANES):
        left, place = hidden - at, 4 * at
        r, z, inside = (
            load_n(gates + place, left),
            load_n(gates + place + step, left),
            load_n(gates + place + 2 * step, left),
        )
        if bias != 0:
            r = r + load_n(bias + place, left)
            z = z + load_n(bias + place + step, left)
            inside = inside + load_n(bias + place + 2 * step, left)
        r = sigmoid16(load_n(added + place, left) + r)
        z = sigmoid16(load_n(added + place + step, left) + z)
        n = tanh16(load_n(added + place + 2 * step, left) + r * inside)
        store_n(gates + place, r, left)
        store_n(gates + place + step, z, left)
        store_n(gates + place + 2 * step, n, left)
        store_n(gates + place + 3 * step, inside, left)
        store_n(state + place, n + z * (load_n(before + place, left) - n), left)


@inner
def gru_step_back(gates: Any, before: Any, by_h: Any, by_added: Any, by_product: Any, hidden: Any) -> None:
    """The gradients by what the inputs add and by the product of the state; `by_h` becomes what the update gate leaves
    of it for the state before."""
    step, one = 4 * hidden, np.float32(1)
    for at in range(0, hidden, LANES):
        left, place = hidden - at, 4 * at
        r, z = load_n(gates + place, left), load_n(gates + place + step, left)
        n, inside = load_n(gates + place + 2 * step, left), load_n(gates + place + 3 * step, left)
        grad = load_n(by_h + place, left)
        new = grad * (one - z) * (one - n * n)
        reset = new * inside * r * (one - r)
        update = grad * (load_n(before + place, left) - n) * z * (one - z)
        store_n(by_added + place, reset, left)
        store_n(by_added + place + step, update, left)
        store_n(by_added + place + 2 * step, new, left)
        store_n(by_product + place, reset, left)
        store_n(by_product + place + step, update, left)
        store_n(by_product + place + 2 * step, new * r, left)
        store_n(by_h + place, grad * z, left)


@inner
def rnn_step(relu: Any, added: Any, state: Any, hidden: Any) -> None:
    """`state`, which holds the product of the one before, becomes the next one."""
    for at in range(0, hidden, LANES):
        left, place = hidden - at, 4 * at
        x = load_n(added + place, left) + load_n(state + place, left)
        if relu:
            store_n(state + place, select(x < np.float32(0), np.float32(0), x), left)
        else:
            store_n(state + place, tanh16(x), left)


@inner
def rnn_step_back(relu: Any, state: Any, by_h: Any, grads: Any, hidden: Any) -> None:
    """The gradient before the activation."""
    zero, one = np.float32(0), np.float32(1)
    for at in range(0, hidden, LANES):
        left, place = hidden - at, 4 * at
        h, grad = load_n(state + place, left), load_n(by_h + place, left)
        if relu:
            store_n(grads + place, select(h > zero, grad, zero), left)
        else:
            store_n(grads + place, grad * (one - h * h), left)
