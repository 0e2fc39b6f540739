"""Native LSTMSteps and LSTMStepsGrad of f32: all times in one launch.

A part has some of the sequences from the first time to the last, so that threads need not wait for each other; each
multiplies the states of its sequences by the whole matrix, which stays in its second cache.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import i32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.memory import load_n, sigmoid16, store_n, tanh16
from ...runtime.simd.vector import LANES, splat
from ..kernels.gemm.microkernel_f32 import ROWS, column_of_tiles
from ..kernels.gemm.register_tile import PANEL
from ..linalg.panel_product import copied_into_panels, zeros
from .lstm_steps import lstm_steps, lstm_steps_grad
from .recurrent_kernel import copied_row

LEAST_ROWS = 4
"""Sequences of a part: fewer read the matrix more often than they use it."""


@inner
def _product(
    rows: Any, row: Any, count: Any, depth: Any, weights: Any, result: Any, columns: Any, zero: Any, spare: Any
) -> None:
    """`count` rows of `depth` elements, `row` bytes apart, times panels: rows of `columns` elements."""
    for panel in range((columns + PANEL - 1) // PANEL):
        column_of_tiles(
            rows,
            row,
            4,
            weights + panel * depth * PANEL * 4,
            depth,
            result + panel * PANEL * 4,
            4 * columns,
            0,
            count,
            min(PANEL, columns - panel * PANEL),
            zero,
            0,
            zero,
            np.float32(-np.inf),
            np.float32(np.inf),
            spare,
        )


@inner
def _stepped(added: Any, gates: Any, before: Any, cell: Any, state: Any, hidden: Any) -> None:
    """Gates of a sequence, which hold the product of its state, are activated; its next states are written."""
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


@range_kernel(fastmath={"contract"})
def lstm_stepped(
    times: int,
    batch: int,
    hidden: int,
    reverse: int,
    added: Address,
    weights: Address,
    h_first: Address,
    c_first: Address,
    lengths: Address,
    y: Address,
    cells: Address,
    gates: Address,
    zero: Address,
    spare: Address,
    part: int,
    parts: int,
) -> None:
    """Arrays are as of `lstm_steps`; `weights` has r transposed, in panels."""
    first, last = share(batch, part, parts)
    row, wide = 4 * hidden, 16 * hidden
    own = spare + part * 4 * PANEL * ROWS
    h, c = h_first, c_first
    for turn in range(times):
        time = times - 1 - turn if reverse != 0 else turn
        after, cell = y + time * batch * row, cells + time * batch * row
        opened, now = gates + time * batch * wide, added + time * batch * wide
        _product(h + first * row, row, last - first, hidden, weights, opened + first * wide, 4 * hidden, zero, own)
        for index in range(first, last):
            at = index * row
            _stepped(now + index * wide, opened + index * wide, c + at, cell + at, after + at, hidden)
            if lengths != 0 and time >= i32(lengths)[index]:
                copied_row(h + at, after + at, hidden)
                copied_row(c + at, cell + at, hidden)
        h, c = after, cell


@inner
def _stepped_back(gates: Any, cell: Any, before: Any, by_h: Any, by_c: Any, grads: Any, hidden: Any) -> None:
    """The gradient by the gates of a sequence before activation; `by_c` becomes that of the cell state before."""
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
def _increased(target: Any, more: Any, count: Any) -> None:
    for at in range(0, count, LANES):
        left = count - at
        store_n(target + 4 * at, load_n(target + 4 * at, left) + load_n(more + 4 * at, left), left)


@inner
def _zeroed(target: Any, count: Any) -> None:
    for at in range(0, count, LANES):
        store_n(target + 4 * at, splat(np.float32(0)), count - at)


@range_kernel(fastmath={"contract"})
def lstm_stepped_back(
    times: int,
    batch: int,
    hidden: int,
    reverse: int,
    gates: Address,
    cells: Address,
    c_first: Address,
    weights: Address,
    by_hidden: Address,
    by_cells: Address,
    lengths: Address,
    by_added: Address,
    by_h: Address,
    by_c: Address,
    product: Address,
    zero: Address,
    spare: Address,
    part: int,
    parts: int,
) -> None:
    """Arrays are as of `lstm_steps_grad`; `weights` has r in panels, `product` is memory for a gradient of states."""
    first, last = share(batch, part, parts)
    row, wide = 4 * hidden, 16 * hidden
    own = spare + part * 4 * PANEL * ROWS
    for index in range(first, last):
        _zeroed(by_h + index * row, hidden)
        _zeroed(by_c + index * row, hidden)
    for turn in range(times):
        time = turn if reverse != 0 else times - 1 - turn
        earlier = time + 1 if reverse != 0 else time - 1
        before = cells + earlier * batch * row if turn + 1 < times else c_first
        moment = time * batch
        for index in range(first, last):
            at, place, grads = index * row, moment + index, by_added + (moment + index) * wide
            _increased(by_h + at, by_hidden + place * row, hidden)
            if by_cells != 0:
                _increased(by_c + at, by_cells + place * row, hidden)
            if lengths != 0 and time >= i32(lengths)[index]:
                _zeroed(grads, 4 * hidden)
            else:
                _stepped_back(
                    gates + place * wide, cells + place * row, before + at, by_h + at, by_c + at, grads, hidden
                )
        grads = by_added + (moment + first) * wide
        _product(grads, wide, last - first, 4 * hidden, weights, product + first * row, hidden, zero, own)
        for index in range(first, last):
            if lengths == 0 or time < i32(lengths)[index]:
                copied_row(product + index * row, by_h + index * row, hidden)


def _fits(buffer: Buffer | None, dtype: type, shape: tuple[int, ...]) -> bool:
    return buffer is None or (buffer.dtype == dtype and buffer.shape == shape)


def _given(step: Step, shapes: dict[int, tuple[int, ...]], lengths: int, batch: int) -> bool:
    """Whether inputs are f32 of shapes by index, and the lengths of sequences are i32."""
    fit = all(_fits(step.optional_input(index), np.float32, shape) for index, shape in shapes.items())
    return fit and _fits(step.optional_input(lengths), np.int32, (batch,))


def _result(step: Step, index: int, shape: tuple[int, ...]) -> Buffer:
    return step.output(index) if step.is_used(index) else step.temporary(np.float32, shape)


def _parts(step: Step, times: int, batch: int, hidden: int) -> int:
    return min(step.threads, step.parts(-(-batch // LEAST_ROWS), times * batch * hidden * hidden / 4))


@native(lstm_steps)
def plan_lstm_steps(step: Step) -> Planned:
    """Of f32."""
    times, batch, hidden = (*step.input(0).shape[:2], step.input(2).shape[-1])
    state, gates = (batch, hidden), (times, batch, 4 * hidden)
    if not _given(step, {0: gates, 1: (4 * hidden, hidden), 2: state, 3: state}, 4, batch):
        return None
    weights, launches = copied_into_panels(step, step.input(1), (hidden, 4 * hidden), (1, hidden))
    parts = _parts(step, times, batch, hidden)
    run = Launch(
        lstm_stepped,
        parts,
        times=times,
        batch=batch,
        hidden=hidden,
        reverse=step.attributes["reverse"],
        added=step.input(0),
        weights=weights,
        h_first=step.input(2),
        c_first=step.input(3),
        lengths=step.optional_input(4) or 0,
        y=_result(step, 0, (times, *state)),
        cells=_result(step, 1, (times, *state)),
        gates=_result(step, 2, gates),
        zero=zeros(step),
        spare=step.scratch(parts * 4 * PANEL * ROWS),
    )
    return [*launches, run]


@native(lstm_steps_grad)
def plan_lstm_steps_grad(step: Step) -> Planned:
    """Of f32, without gradients of gates, which only second derivatives have."""
    times, batch, hidden = step.input(1).shape
    state, gates, states = (batch, hidden), (times, batch, 4 * hidden), (times, batch, hidden)
    shapes = {0: gates, 1: states, 2: state, 3: (4 * hidden, hidden), 4: states, 5: states}
    if step.optional_input(6) is not None or not _given(step, shapes, 7, batch):
        return None
    weights, launches = copied_into_panels(step, step.input(3), (4 * hidden, hidden), (hidden, 1))
    parts = _parts(step, times, batch, hidden)
    run = Launch(
        lstm_stepped_back,
        parts,
        times=times,
        batch=batch,
        hidden=hidden,
        reverse=step.attributes["reverse"],
        gates=step.input(0),
        cells=step.input(1),
        c_first=step.input(2),
        weights=weights,
        by_hidden=step.input(4),
        by_cells=step.optional_input(5) or 0,
        lengths=step.optional_input(7) or 0,
        by_added=_result(step, 0, gates),
        by_h=_result(step, 1, state),
        by_c=_result(step, 2, state),
        product=step.temporary(np.float32, state),
        zero=zeros(step),
        spare=step.scratch(parts * 4 * PANEL * ROWS),
    )
    return [*launches, run]
