"""Native time steps of LSTM, GRU and RNN in training, and their gradients, of f32: all times in one launch.

A part has some of the sequences from the first time to the last, so that threads need not wait for each other; each
multiplies the states of its sequences by the whole matrix, which stays in its second cache.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit.address import i32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ..kernels.gemm.microkernel_f32 import ROWS
from ..kernels.gemm.register_tile import PANEL
from ..linalg.panel_product import copied_into_panels, zeros
from .gru_steps import gru_steps, gru_steps_grad
from .lstm_steps import lstm_steps, lstm_steps_grad
from .rnn_steps import rnn_steps, rnn_steps_grad
from .state_product import copied_row, state_product
from .step_cells_kernel import (
    gru_step,
    gru_step_back,
    increased,
    lstm_step,
    lstm_step_back,
    rnn_step,
    rnn_step_back,
    zeroed,
)

LEAST_ROWS = 4
"""Sequences of a part: fewer read the matrix more often than they use it."""
LSTM, GRU, RNN_TANH, RNN_RELU = range(4)
GATES = (4, 3, 1, 1)
"""Gates of each kind of cell; GRU keeps one more."""
OF_ACTIVATIONS = {"Tanh": RNN_TANH, "Relu": RNN_RELU}
OPTIONAL = frozenset(("bias", "projection", "c_first", "cells", "state_first", "by_cells", "by_c", "by_states"))
"""Arrays that some kinds of cell do not have."""


@inner
def _ended(lengths: Any, index: Any, time: Any) -> Any:
    return lengths != 0 and time >= i32(lengths)[index]


@range_kernel(fastmath={"contract"})
def stepped(
    cell: int,
    columns: int,
    times: int,
    batch: int,
    size: int,
    hidden: int,
    wide: int,
    reverse: int,
    added: Address,
    weights: Address,
    bias: Address,
    projection: Address,
    h_first: Address,
    c_first: Address,
    lengths: Address,
    y: Address,
    cells: Address,
    gates: Address,
    unprojected: Address,
    zero: Address,
    spare: Address,
    part: int,
    parts: int,
) -> None:
    """Arrays are as of `lstm_steps`, `gru_steps` and `rnn_steps`, `gates` of which are y; `weights` has r and
    `projection` the projection transposed, in panels. States have `size` elements, products `columns`, kept gates
    `wide`; `unprojected` is memory for states of `hidden` elements."""
    first, last = share(batch, part, parts)
    row, line, count = 4 * size, 4 * hidden, last - first
    own = spare + part * 4 * PANEL * ROWS
    h, c = h_first, c_first
    for turn in range(times):
        time = times - 1 - turn if reverse != 0 else turn
        after, held = y + time * batch * row, cells + time * batch * line
        opened, now = gates + time * batch * 4 * wide, added + time * batch * 4 * columns
        target = opened + first * 4 * wide
        state_product(h + first * row, row, count, size, weights, columns, turn % 2, target, 4 * wide, zero, own)
        made, made_row = (unprojected, line) if projection != 0 else (after, row)
        for index in range(first, last):
            inputs, own_gates, state = now + index * 4 * columns, opened + index * 4 * wide, made + index * made_row
            if cell == LSTM:
                lstm_step(inputs, own_gates, c + index * line, held + index * line, state, hidden)
            elif cell == GRU:
                gru_step(inputs, own_gates, bias, h + index * row, state, hidden)
            else:
                rnn_step(cell == RNN_RELU, inputs, state, hidden)
        if projection != 0:
            target = after + first * row
            state_product(made + first * line, line, count, hidden, projection, size, 0, target, row, zero, own)
        for index in range(first, last):
            if _ended(lengths, index, time):
                copied_row(h + index * row, after + index * row, size)
                if cell == LSTM:
                    copied_row(c + index * line, held + index * line, hidden)
        h, c = after, held


@range_kernel(fastmath={"contract"})
def stepped_back(
    cell: int,
    columns: int,
    times: int,
    batch: int,
    size: int,
    hidden: int,
    wide: int,
    reverse: int,
    gates: Address,
    states: Address,
    state_first: Address,
    weights: Address,
    projection: Address,
    by_hidden: Address,
    by_cells: Address,
    lengths: Address,
    by_added: Address,
    by_product: Address,
    by_h: Address,
    by_c: Address,
    by_states: Address,
    product: Address,
    unprojected: Address,
    zero: Address,
    spare: Address,
    part: int,
    parts: int,
) -> None:
    """Arrays are as of `lstm_steps_grad`, `gru_steps_grad` and `rnn_steps_grad`: `states` are cell states or hidden
    ones, `by_product` is `by_added` where they are equal. `weights` has r and `projection` the projection in panels;
    `product` and `unprojected` are memory for gradients of states. Lengths are as of `stepped`."""
    first, last = share(batch, part, parts)
    row, line, count = 4 * size, 4 * hidden, last - first
    own = spare + part * 4 * PANEL * ROWS
    for index in range(first, last):
        zeroed(by_h + index * row, size)
        if cell == LSTM:
            zeroed(by_c + index * line, hidden)
    for turn in range(times):
        time = turn if reverse != 0 else times - 1 - turn
        earlier = time + 1 if reverse != 0 else time - 1
        before = states + earlier * batch * line if turn + 1 < times else state_first
        moment = time * batch
        for index in range(first, last):
            place = moment + index
            increased(by_h + index * row, by_hidden + place * row, size)
            if by_cells != 0:
                increased(by_c + index * line, by_cells + place * line, hidden)
            if by_states != 0:
                if _ended(lengths, index, time):
                    zeroed(by_states + place * row, size)
                else:
                    copied_row(by_h + index * row, by_states + place * row, size)
        by_made, by_made_row = by_h, row
        if projection != 0:
            by_made, by_made_row = unprojected, line
            target = by_made + first * line
            state_product(by_h + first * row, row, count, size, projection, hidden, 0, target, line, zero, own)
        for index in range(first, last):
            place, held = moment + index, before + index * line
            inputs, grads = by_added + place * 4 * columns, by_product + place * 4 * columns
            opened, given = gates + place * 4 * wide, by_made + index * by_made_row
            if _ended(lengths, index, time):
                zeroed(inputs, columns)
                zeroed(grads, columns)
            elif cell == LSTM:
                lstm_step_back(opened, states + place * line, held, given, by_c + index * line, grads, hidden)
            elif cell == GRU:
                gru_step_back(opened, held, given, inputs, grads, hidden)
            else:
                rnn_step_back(cell == RNN_RELU, states + place * line, given, grads, hidden)
        grads, target = by_product + (moment + first) * 4 * columns, product + first * row
        state_product(grads, 4 * columns, count, columns, weights, size, turn % 2, target, row, zero, own)
        for index in range(first, last):
            if _ended(lengths, index, time):
                continue
            if cell == GRU:
                increased(by_h + index * row, product + index * row, size)
            else:
                copied_row(product + index * row, by_h + index * row, size)


@dataclass(frozen=True)
class _Steps:
    """A node of time steps: its kind of cell, times, sequences, and elements of hidden and cell states."""

    step: Step
    cell: int
    times: int
    batch: int
    size: int
    hidden: int

    @property
    def columns(self) -> int:
        """Elements of all gates."""
        return GATES[self.cell] * self.hidden

    @property
    def wide(self) -> int:
        """Elements that are kept of the gates."""
        return 4 * self.hidden if self.cell in (LSTM, GRU) else self.hidden

    def all_times(self, width: int) -> tuple[int, ...]:
        """A shape."""
        return self.times, self.batch, width

    def given(self, shapes: dict[int, tuple[int, ...]], lengths: int) -> bool:
        """Whether inputs are f32 of shapes by index, absent ones aside, and the lengths of sequences are i32."""
        fit = all(_fits(self.step.optional_input(index), np.float32, shape) for index, shape in shapes.items())
        return fit and _fits(self.step.optional_input(lengths), np.int32, (self.batch,))

    def result(self, index: int, shape: tuple[int, ...]) -> Buffer:
        """An output, or memory for it where it is not asked for."""
        return self.step.output(index) if self.step.is_used(index) else self.step.temporary(np.float32, shape)

    def panels(self, index: int, transposed: bool) -> tuple[Buffer | int, list[Launch]]:
        """A matrix among the inputs in panels, and what copies it there; 0 if it is absent."""
        matrix = self.step.optional_input(index)
        if matrix is None:
            return 0, []
        rows, columns = matrix.shape
        if transposed:
            return copied_into_panels(self.step, matrix, (columns, rows), (1, columns))
        return copied_into_panels(self.step, matrix, (rows, columns), (columns, 1))

    def launch(self, kernel: RangeKernel, **arguments: Buffer | int) -> Launch:
        """A launch with the arguments that both kernels have, and 0 for arrays of `OPTIONAL` that are absent."""
        step = self.step
        absent = dict.fromkeys(OPTIONAL & kernel.parameters.kinds.keys(), 0)
        projected = isinstance(arguments.get("projection"), Buffer)
        work = self.times * self.batch * self.size * self.columns / 16
        parts = min(step.threads, step.parts(-(-self.batch // LEAST_ROWS), work))
        return Launch(
            kernel,
            parts,
            cell=self.cell,
            columns=self.columns,
            times=self.times,
            batch=self.batch,
            size=self.size,
            hidden=self.hidden,
            wide=self.wide,
            reverse=step.attributes["reverse"],
            unprojected=step.temporary(np.float32, (self.batch, self.hidden)) if projected else 0,
            zero=zeros(step),
            spare=step.scratch(parts * 4 * PANEL * ROWS),
            **{**absent, **arguments},
        )


def _fits(buffer: Buffer | None, dtype: type, shape: tuple[int, ...]) -> bool:
    return buffer is None or (buffer.dtype == dtype and buffer.shape == shape)


@native(lstm_steps)
def plan_lstm_steps(step: Step) -> Planned:
    """Of f32."""
    times, batch = step.input(0).shape[:2]
    steps = _Steps(step, LSTM, times, batch, step.input(2).shape[-1], step.input(3).shape[-1])
    size, hidden, columns = steps.size, steps.hidden, steps.columns
    shapes = {0: steps.all_times(columns), 1: (columns, size), 2: (batch, size), 3: (batch, hidden), 5: (size, hidden)}
    if not steps.given(shapes, 4) or (step.optional_input(5) is None and size != hidden):
        return None
    weights, launches = steps.panels(1, transposed=True)
    projection, more = steps.panels(5, transposed=True)
    run = steps.launch(
        stepped,
        added=step.input(0),
        weights=weights,
        projection=projection,
        h_first=step.input(2),
        c_first=step.input(3),
        lengths=step.optional_input(4) or 0,
        y=steps.result(0, steps.all_times(size)),
        cells=steps.result(1, steps.all_times(hidden)),
        gates=steps.result(2, steps.all_times(columns)),
    )
    return [*launches, *more, run]


@native(gru_steps)
def plan_gru_steps(step: Step) -> Planned:
    """Of f32."""
    times, batch, hidden = (*step.input(0).shape[:2], step.input(2).shape[-1])
    steps = _Steps(step, GRU, times, batch, hidden, hidden)
    columns = steps.columns
    shapes = {0: steps.all_times(columns), 1: (columns, hidden), 2: (batch, hidden), 3: (columns,)}
    if not steps.given(shapes, 4):
        return None
    weights, launches = steps.panels(1, transposed=True)
    run = steps.launch(
        stepped,
        added=step.input(0),
        weights=weights,
        bias=step.optional_input(3) or 0,
        h_first=step.input(2),
        lengths=step.optional_input(4) or 0,
        y=steps.result(0, steps.all_times(hidden)),
        gates=steps.result(1, steps.all_times(4 * hidden)),
    )
    return [*launches, run]


@native(rnn_steps)
def plan_rnn_steps(step: Step) -> Planned:
    """Of f32."""
    times, batch, hidden = (*step.input(0).shape[:2], step.input(2).shape[-1])
    cell = OF_ACTIVATIONS.get(step.attributes["activation"])
    if cell is None:
        return None
    steps = _Steps(step, cell, times, batch, hidden, hidden)
    if not steps.given({0: steps.all_times(hidden), 1: (hidden, hidden), 2: (batch, hidden)}, 3):
        return None
    weights, launches = steps.panels(1, transposed=True)
    y = steps.result(0, steps.all_times(hidden))
    run = steps.launch(
        stepped,
        added=step.input(0),
        weights=weights,
        h_first=step.input(2),
        lengths=step.optional_input(3) or 0,
        y=y,
        gates=y,
    )
    return [*launches, run]


@native(lstm_steps_grad)
def plan_lstm_steps_grad(step: Step) -> Planned:
    """Of f32, without gradients of gates, which only second derivatives have."""
    times, batch, hidden = step.input(1).shape
    steps = _Steps(step, LSTM, times, batch, step.input(4).shape[-1], hidden)
    size, columns = steps.size, steps.columns
    states, hiddens, state = steps.all_times(hidden), steps.all_times(size), (batch, hidden)
    shapes = {0: steps.all_times(columns), 1: states, 2: state, 3: (columns, size), 4: hiddens, 5: states}
    if step.optional_input(6) is not None or not steps.given({**shapes, 8: (size, hidden)}, 7):
        return None
    if step.optional_input(8) is None and size != hidden:
        return None
    weights, launches = steps.panels(3, transposed=False)
    projection, more = steps.panels(8, transposed=False)
    by_added = steps.result(0, steps.all_times(columns))
    run = steps.launch(
        stepped_back,
        gates=step.input(0),
        states=step.input(1),
        state_first=step.input(2),
        weights=weights,
        projection=projection,
        by_hidden=step.input(4),
        by_cells=step.optional_input(5) or 0,
        lengths=step.optional_input(7) or 0,
        by_added=by_added,
        by_product=by_added,
        by_h=steps.result(1, (batch, size)),
        by_c=steps.result(2, state),
        by_states=step.output(3) if step.is_used(3) else 0,
        product=step.temporary(np.float32, (batch, size)),
    )
    return [*launches, *more, run]


@native(gru_steps_grad)
def plan_gru_steps_grad(step: Step) -> Planned:
    """Of f32, without gradients of gates, which only second derivatives have."""
    times, batch, hidden = step.input(1).shape
    steps = _Steps(step, GRU, times, batch, hidden, hidden)
    columns, state, states = steps.columns, (batch, hidden), steps.all_times(hidden)
    shapes = {0: steps.all_times(4 * hidden), 1: states, 2: state, 3: (columns, hidden), 4: states}
    if step.optional_input(5) is not None or not steps.given(shapes, 6):
        return None
    weights, launches = steps.panels(3, transposed=False)
    run = steps.launch(
        stepped_back,
        gates=step.input(0),
        states=step.input(1),
        state_first=step.input(2),
        weights=weights,
        by_hidden=step.input(4),
        lengths=step.optional_input(6) or 0,
        by_added=steps.result(0, steps.all_times(columns)),
        by_product=steps.result(1, steps.all_times(columns)),
        by_h=steps.result(2, state),
        product=step.temporary(np.float32, state),
    )
    return [*launches, run]


@native(rnn_steps_grad)
def plan_rnn_steps_grad(step: Step) -> Planned:
    """Of f32."""
    times, batch, hidden = step.input(0).shape
    cell = OF_ACTIVATIONS.get(step.attributes["activation"])
    if cell is None:
        return None
    steps = _Steps(step, cell, times, batch, hidden, hidden)
    states, state = steps.all_times(hidden), (batch, hidden)
    if not steps.given({0: states, 1: (hidden, hidden), 2: states}, 3):
        return None
    weights, launches = steps.panels(1, transposed=False)
    by_added = steps.result(0, states)
    run = steps.launch(
        stepped_back,
        gates=step.input(0),
        states=step.input(0),
        weights=weights,
        by_hidden=step.input(2),
        lengths=step.optional_input(3) or 0,
        by_added=by_added,
        by_product=by_added,
        by_h=steps.result(1, state),
        product=step.temporary(np.float32, state),
    )
    return [*launches, run]
