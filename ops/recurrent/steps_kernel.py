"""Native time steps of LSTM, GRU and RNN in training, and their gradients, of f32: all times in one launch.

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

F32 = np.dtype(np.float32)
LEAST_ROWS = 4
"""Sequences of a part: fewer read the matrix more often than they use it."""
LSTM, GRU, RNN_TANH, RNN_RELU = range(4)
GATES = (4, 3, 1, 1)
"""Gates of each kind of cell; GRU keeps one more."""
OF_ACTIVATIONS = {"Tanh": RNN_TANH, "Relu": RNN_RELU}
OPTIONAL = frozenset(
    ("bias", "projection", "c_first", "lengths", "cells", "state_first", "by_cells", "by_c", "by_states")
)
"""Arrays that some nodes do not have."""
OPTIONAL_OUTPUTS = ("by_states",)
"""Outputs that the kernel writes only where they are used."""
CELLS = {lstm_steps: LSTM, lstm_steps_grad: LSTM, gru_steps: GRU, gru_steps_grad: GRU}
AXES = {
    "added": "TBC", "weights": "CS", "bias": "C", "projection": "SH", "lengths": "B",
    "h_first": "BS", "c_first": "BH", "y": "TBS", "cells": "TBH", "gates": "TBW",
    "states": "TBH", "state_first": "BH", "by_hidden": "TBS", "by_cells": "TBH",
    "by_added": "TBC", "by_product": "TBC", "by_h": "BS", "by_c": "BH", "by_states": "TBS",
}  # fmt: skip
"""Axes of each array: times T, sequences B, gates C and those that are kept W, elements of hidden states S and of cell
states H."""


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


ARRAYS = {
    lstm_steps: (stepped, ("added", "weights", "h_first", "c_first", "lengths", "projection"), ("y", "cells", "gates")),
    gru_steps: (stepped, ("added", "weights", "h_first", "bias", "lengths"), ("y", "gates")),
    rnn_steps: (stepped, ("added", "weights", "h_first", "lengths"), ("y",)),
    lstm_steps_grad: (
        stepped_back,
        ("gates", "states", "state_first", "weights", "by_hidden", "by_cells", "by_gates", "lengths", "projection"),
        ("by_added", "by_h", "by_c", "by_states"),
    ),
    gru_steps_grad: (
        stepped_back,
        ("gates", "states", "state_first", "weights", "by_hidden", "by_gates", "lengths"),
        ("by_added", "by_product", "by_h"),
    ),
    rnn_steps_grad: (stepped_back, ("states", "weights", "by_hidden", "lengths"), ("by_added", "by_h")),
}
"""The kernel of each operator, and its names of the operator's inputs and outputs. Gates of RNN are its states."""


@native(lstm_steps, gru_steps, rnn_steps, lstm_steps_grad, gru_steps_grad, rnn_steps_grad)
def plan_steps(step: Step) -> Planned:
    """Plan f32 without gradients of gates, which only second derivatives have."""
    kernel, inputs, outputs = ARRAYS[step.node.op]
    cell = CELLS.get(step.node.op, OF_ACTIVATIONS.get(step.attributes.get("activation", "")))
    given = {name: array for index, name in enumerate(inputs) if (array := step.optional_input(index)) is not None}
    if cell is None or "by_gates" in given:
        return None
    forward = kernel is stepped
    times, batch = given[inputs[0]].shape[:2]
    size = given["h_first" if forward else "by_hidden"].shape[-1]
    state = given.get("c_first" if forward else "states")
    hidden = size if state is None else state.shape[-1]
    columns, wide = GATES[cell] * hidden, hidden * (4 if cell in (LSTM, GRU) else 1)
    lengths = {"T": times, "B": batch, "C": columns, "W": wide, "S": size, "H": hidden}
    shapes = {name: tuple(lengths[axis] for axis in axes) for name, axes in AXES.items()}
    dtypes = {"lengths": np.dtype(np.int32)}
    fit = all(array.shape == shapes[name] and array.dtype == dtypes.get(name, F32) for name, array in given.items())
    if not fit or (size != hidden and "projection" not in given):
        return None
    arrays: dict[str, Buffer | int] = {**dict.fromkeys(OPTIONAL & kernel.parameters.kinds.keys(), 0), **given}
    launches: list[Launch] = []
    for name in ("weights", "projection"):
        if name in given:
            rows, width = given[name].shape
            layout = ((width, rows), (1, width)) if forward else ((rows, width), (width, 1))
            arrays[name], copies = copied_into_panels(step, given[name], *layout, PANEL)
            launches += copies
    for index, name in enumerate(outputs):
        if step.is_used(index):
            arrays[name] = step.output(index)
        elif name not in OPTIONAL_OUTPUTS:
            arrays[name] = step.temporary(F32, shapes[name])
    if forward:
        arrays.setdefault("gates", arrays["y"])
    else:
        arrays.setdefault("gates", arrays["states"])
        arrays.setdefault("by_product", arrays["by_added"])
        arrays["product"] = step.temporary(F32, shapes["h_first"])
    work = times * batch * size * columns / 16
    parts = min(step.threads, step.parts(-(-batch // LEAST_ROWS), work))
    launch = Launch(
        kernel,
        parts,
        cell=cell,
        columns=columns,
        times=times,
        batch=batch,
        size=size,
        hidden=hidden,
        wide=wide,
        reverse=step.attributes["reverse"],
        unprojected=step.temporary(F32, (batch, hidden)) if "projection" in given else 0,
        zero=zeros(step),
        spare=step.scratch(parts * 4 * PANEL * ROWS),
        **arrays,
    )
    return [*launches, launch]
