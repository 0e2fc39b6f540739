"""Native f32 RNN, GRU and LSTM: one product for all inputs, then per time step a product of the state and the cell.

A unit of work is a block of sequences in one direction, from its first time to its last. Where there are fewer of them
than threads, these share the hidden units of each time step. Threads change nothing about sums.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit.address import f32, i32, i64
from ...runtime.jit.atomic import GIVE_WAY, atomic_add, atomic_load, spin, swapped
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native, parts_for
from ...runtime.simd.vector import LANES
from ..kernels.gemm.microkernel_f32 import ROWS, panels
from ..kernels.gemm.register_tile import PANEL
from ..linalg.panel_product import packed_launch, product_panels, zeros
from .cells_kernel import KINDS, gru_reset, gru_row, lstm_row, rnn_row
from .gru import gru
from .lstm import lstm
from .recurrent import ACTIVATIONS, DIRECTIONS
from .rnn import rnn
from .state_product import copied_row, product_of_panels, state_product

F32 = np.dtype(np.float32)
BLOCK = 16
"""Sequences of a unit of work."""
WORD_STEP = 64
"""Bytes from word to word of those that threads share."""
CELLS = {"LSTM": (0, 4, 3), "GRU": (1, 3, 2), "RNN": (2, 1, 1)}
"""Number of each cell, its gates, and its activations."""
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


@inner
def filled_states(given: Any, at: Any, row: Any, target: Any, width: Any, rows: Any, hidden: Any) -> None:
    """States [rows, width] from those given `row` bytes apart, zero if absent."""
    for index in range(rows):
        state = f32(target + 4 * width * index)
        for j in range(width):
            state[j] = f32(given + at + index * row)[j] if given != 0 and j < hidden else np.float32(0)


@inner
def _unit(unit: Any, batch: Any, state_direction: Any, state_batch: Any) -> tuple[Any, Any, Any, Any]:
    """Direction, first sequence and number of sequences of a unit of work, and the position of its states in bytes."""
    count = (batch + BLOCK - 1) // BLOCK
    direction, start = unit // count, unit % count * BLOCK
    return direction, start, min(BLOCK, batch - start), direction * state_direction + start * state_batch


@range_kernel
def begun(
    batch: int,
    directions: int,
    hidden: int,
    h_first: Address,
    c_first: Address,
    state_direction: int,
    state_batch: int,
    room: Address,
    room_bytes: int,
    words: Address,
    word_bytes: int,
    part: int,
    parts: int,
) -> None:
    """The first states of all units, and zeros in the words by which threads share a unit (`recurred`)."""
    width = (hidden + LANES - 1) // LANES * LANES
    for unit in range(directions * ((batch + BLOCK - 1) // BLOCK)):
        _, _, rows, place = _unit(unit, batch, state_direction, state_batch)
        scratch = room + unit * room_bytes
        filled_states(h_first, place, state_batch, scratch, width, rows, hidden)
        filled_states(c_first, place, state_batch, scratch + 8 * BLOCK * width, width, rows, hidden)
        for offset in range(0, word_bytes, 8):
            i64(words + unit * word_bytes + offset)[0] = 0


@range_kernel(fastmath={"contract"})
def recurred(
    cell: int,
    times: int,
    batch: int,
    directions: int,
    hidden: int,
    gate_count: int,
    backwards: int,
    flag: int,
    added: Address,
    added_direction: int,
    added_time: int,
    added_batch: int,
    weights: Address,
    candidate: Address,
    y: Address,
    y_time: int,
    y_batch: int,
    y_direction: int,
    h_first: Address,
    c_first: Address,
    state_direction: int,
    state_batch: int,
    h_last: Address,
    c_last: Address,
    lengths: Address,
    peepholes: Address,
    bias: Address,
    tables: Address,
    activations: int,
    zero: Address,
    limit: float,
    room: Address,
    room_bytes: int,
    words: Address,
    word_bytes: int,
    give_way: Address,
    bailout: Address,
    part: int,
    parts: int,
) -> None:
    """A cell (`CELLS`) over all times. Steps are bytes; `backwards` has a bit for each direction; `flag` is
    input_forget or linear_before_reset; `added` has products of the inputs, `tables` the activations, so many of each
    direction.

    Without `words`, units are parts. With them, every part takes part in every unit: a time step has a piece of the
    hidden units for each part, pieces are claimed, the own one first, and all wait for the last one. Words of a unit,
    each in a line of its own: pieces done, then for each piece the time steps in which it was claimed. A thread that
    comes late finds all pieces claimed."""
    clip = np.float32(limit)
    width = (hidden + LANES - 1) // LANES * LANES
    columns, together = gate_count * hidden, words != 0
    row = 4 * (columns + LANES)
    first_columns = columns if cell != 1 or flag != 0 else 2 * hidden
    panel_bytes, panels_of_gates = 4 * PANEL * hidden, (first_columns + PANEL - 1) // PANEL
    candidate_panels = (hidden + PANEL - 1) // PANEL
    pieces, other = (parts, 4 * BLOCK * width) if together else (1, 0)
    between = hidden // PANEL if together else panels_of_gates
    units = directions * ((batch + BLOCK - 1) // BLOCK)
    for unit in range(0 if together else part, units, 1 if together else parts):
        direction, start, rows, place = _unit(unit, batch, state_direction, state_batch)
        scratch = room + (unit if together else part) * room_bytes
        h, c, reset = scratch, scratch + 8 * BLOCK * width, scratch + 12 * BLOCK * width
        gates = scratch + 16 * BLOCK * width
        spare = gates + BLOCK * row + part * 4 * PANEL * ROWS if together else gates + BLOCK * row
        table, own = tables + 12 * activations * direction, words + unit * word_bytes
        for index in range(rows):
            if lengths != 0 and (i32(lengths)[start + index] < 0 or i32(lengths)[start + index] > times):
                i64(bailout)[0] = 1
        if not together:
            filled_states(h_first, place, state_batch, h, width, rows, hidden)
            filled_states(c_first, place, state_batch, c, width, rows, hidden)
        for turn in range(times):
            time = turn if (backwards >> direction) & 1 == 0 else times - 1 - turn
            before, after = h + turn % 2 * other, h + (turn + 1) % 2 * other
            now = added + direction * added_direction + time * added_time + start * added_batch
            for attempt in range(pieces):
                piece = (part + attempt) % pieces
                claim = own + WORD_STEP * (1 + piece)
                if together and (atomic_load(claim) != turn or not swapped(claim, turn, turn + 1)):
                    continue
                low, high = between * piece // pieces, between * (piece + 1) // pieces
                begin, some = (low * PANEL, (high - low) * PANEL) if together else (0, hidden)
                product_of_panels(
                    before,
                    4 * width,
                    rows,
                    hidden,
                    weights + direction * panel_bytes * panels_of_gates,
                    first_columns,
                    low,
                    high,
                    between,
                    turn % 2,
                    gates,
                    row,
                    zero,
                    spare,
                )
                if cell == 1 and flag == 0:
                    for index in range(rows):
                        gru_reset(
                            now + index * added_batch,
                            gates + index * row,
                            hidden,
                            h + 4 * width * index,
                            reset + 4 * width * index,
                            table,
                            clip,
                        )
                    state_product(
                        reset,
                        4 * width,
                        rows,
                        hidden,
                        candidate + direction * panel_bytes * candidate_panels,
                        hidden,
                        turn % 2,
                        gates + 8 * hidden,
                        row,
                        zero,
                        spare,
                    )
                for index in range(rows):
                    out = y + time * y_time + (start + index) * y_batch + direction * y_direction + 4 * begin
                    state = after + 4 * width * index + 4 * begin
                    if together:
                        copied_row(before + 4 * width * index + 4 * begin, state, some)
                    if lengths != 0 and time >= i32(lengths)[start + index]:
                        if y != 0:
                            for j in range(some):
                                f32(out)[j] = np.float32(0)
                        continue
                    line, opened = now + index * added_batch + 4 * begin, gates + index * row + 4 * begin
                    if cell == 0:
                        peep = peepholes + direction * 4 * (3 * hidden + LANES) + 4 * begin if peepholes != 0 else 0
                        held = c + 4 * width * index + 4 * begin
                        lstm_row(line, opened, 0, hidden, some, state, held, peep, table, clip, flag)
                    elif cell == 1:
                        shift = bias + direction * 4 * (hidden + LANES) + 4 * begin
                        gru_row(line, opened, hidden, some, state, shift, table, clip, flag)
                    else:
                        rnn_row(line, opened, some, state, table, clip)
                    if y != 0:
                        copied_row(state, out, some)
                if together:
                    atomic_add(own, 1)
            waited = 0
            while together and atomic_load(own) < (turn + 1) * pieces:
                waited = spin(waited, give_way)
        for index in range(rows if part == 0 or not together else 0):
            if h_last != 0:
                state = h + times % 2 * other + 4 * width * index
                copied_row(state, h_last + place + index * state_batch, hidden)
            if c_last != 0:
                copied_row(c + 4 * width * index, c_last + place + index * state_batch, hidden)


def activation_table(step: Step, directions: int, what: str) -> np.ndarray | None:
    """Kind, alpha and beta of each activation [directions, activations, 3]; None where one is unknown or missing."""
    count = CELLS[what][2] * directions
    names = list(step.attributes["activations"] or DEFAULTS[what] * directions)
    if len(names) < count or any(name.lower() not in KINDS for name in names):
        return None
    left = [list(step.attributes[key] or ()) for key in ("activation_alpha", "activation_beta")]
    rows = []
    for name in names[:count]:
        _, *defaults = ACTIVATIONS[name.lower()]
        values = [
            0.0 if default is None else given.pop(0) if given else default
            for given, default in zip(left, defaults, strict=True)
        ]
        rows.append((KINDS[name.lower()], *values))
    return np.array(rows, np.float32)


@dataclass(frozen=True)
class Lengths:
    """Lengths of a recurrence: times, sequences, input, directions, hidden."""

    times: int
    batch: int
    size: int
    directions: int
    hidden: int


def _lengths(step: Step, gates: int) -> Lengths | None:
    """The lengths of a recurrence; None if its inputs do not match, which NumPy's function reports."""
    x, w, r = step.inputs[:3]
    if x is None or w is None or r is None or any(item.dtype != F32 for item in (x, w, r)) or len(x.shape) != 3:
        return None
    count = DIRECTIONS.get(step.attributes["direction"], 0)
    times, batch = x.shape[1::-1] if step.attributes["layout"] else x.shape[:2]
    hidden = r.shape[-1]
    fits = w.shape == (count, gates * hidden, x.shape[2]) and r.shape == (count, gates * hidden, hidden)
    return (
        Lengths(times, batch, x.shape[2], count, hidden)
        if fits and step.attributes["hidden_size"] in (None, hidden)
        else None
    )


def _constants(step: Step, indices: tuple[int, ...]) -> list[np.ndarray | None] | None:
    """Arrays of constant inputs, None for absent ones; None where one is not constant."""
    found: list[np.ndarray | None] = []
    for index in indices:
        array = step.constant(index)
        if array is None and index < len(step.inputs) and step.inputs[index] is not None:
            return None
        found.append(array)
    return found


def padded_rows(rows: np.ndarray) -> np.ndarray:
    """Rows with room after each for a vector that starts in it."""
    return np.pad(rows, [(0, 0), (0, LANES)]).astype(np.float32)


def initial_state(step: Step, index: int, shape: tuple[int, ...]) -> Buffer | int | None:
    """An initial state, 0 where none is given, None where it does not fit."""
    given = step.inputs[index] if index < len(step.inputs) else None
    if given is None:
        return 0
    return given if given.shape == shape and given.dtype == F32 else None


def _shared(step: Step, lengths: Lengths, units: int, columns: int) -> int:
    """How many threads share the hidden units of each time step; 0 where units are enough, or steps too small."""
    if units >= step.threads or lengths.hidden % PANEL:
        return 0
    pieces = parts_for(step.threads, lengths.hidden // PANEL, min(lengths.batch, BLOCK) * columns * lengths.hidden)
    return min(step.threads, pieces) if pieces > 1 else 0


@native(lstm, gru, rnn)
def plan_recurrent(step: Step) -> Planned:
    """Plan f32 with constant weights; NumPy computes the rest."""
    what = step.node.op.name
    is_lstm, is_gru = step.node.op is lstm, step.node.op is gru
    cell, gates, functions = CELLS[what]
    lengths = _lengths(step, gates)
    constants = _constants(step, (1, 2, 3, 7) if is_lstm else (1, 2, 3))
    table = None if lengths is None else activation_table(step, lengths.directions, what)
    if lengths is None or constants is None or table is None:
        return None
    w, r, b, *peepholes = constants
    assert w is not None
    assert r is not None
    columns, directions, hidden = gates * lengths.hidden, lengths.directions, lengths.hidden
    b = np.zeros((directions, 2 * columns), np.float32) if b is None else b
    p = peepholes[0] if peepholes else None
    batch_first = bool(step.attributes["layout"])
    shape = (lengths.batch, directions, hidden) if batch_first else (directions, lengths.batch, hidden)
    states = [initial_state(step, 5, shape), initial_state(step, 6, shape) if is_lstm else 0]
    counted = step.inputs[4] if len(step.inputs) > 4 else None
    ok = (
        b.shape == (directions, 2 * columns)
        and (p is None or p.shape == (directions, 3 * hidden))
        and None not in states
    )
    if not ok or (counted is not None and (counted.shape != (lengths.batch,) or counted.dtype != np.int32)):
        return None
    linear = is_gru and bool(step.attributes["linear_before_reset"])
    launches, added = _added(step, lengths, w, b, columns, linear)
    rows = lengths.times * lengths.batch
    steps = (4 * columns, 4 * columns * lengths.times) if batch_first else (4 * columns * lengths.batch, 4 * columns)
    split = columns if not is_gru or linear else 2 * hidden
    weights = step.packed(
        2, ("gates", split), lambda array: np.concatenate([panels(part[:split].T).reshape(-1) for part in array])
    )
    candidate: Buffer | int = 0
    if split != columns:
        candidate = step.packed(
            2,
            ("candidate", split),
            lambda array: np.concatenate([panels(part[split:].T).reshape(-1) for part in array]),
        )
    out = 4 * hidden
    y_steps = (
        (directions * out, lengths.times * directions * out, out)
        if batch_first
        else (directions * lengths.batch * out, out, lengths.batch * out)
    )
    state_steps = (out, directions * out) if batch_first else (lengths.batch * out, out)
    ends = [step.output(index) if step.is_used(index) else 0 for index in range(3 if is_lstm else 2)]
    units = directions * -(-lengths.batch // BLOCK)
    shared = split == columns and _shared(step, lengths, units, columns)
    parts = shared or step.parts(units, rows * directions * columns * hidden / 8)
    width = -(-hidden // LANES) * LANES
    room_bytes = BLOCK * (4 * (columns + LANES) + 16 * width) + 4 * PANEL * ROWS * max(1, shared)
    room = step.scratch(room_bytes * (units if shared else parts))
    word_bytes = WORD_STEP * (1 + shared)
    words = step.scratch(units * word_bytes) if shared else 0
    begin = {
        "batch": lengths.batch,
        "directions": directions,
        "hidden": hidden,
        "h_first": states[0] or 0,
        "c_first": states[1] or 0,
        "state_direction": state_steps[0],
        "state_batch": state_steps[1],
        "room": room,
        "room_bytes": room_bytes,
        "words": words,
        "word_bytes": word_bytes,
    }
    if shared:
        launches.append(Launch(begun, **begin))
    backwards = 2 if directions == 2 else int(step.attributes["direction"] == "reverse")
    flag = step.attributes["input_forget"] if is_lstm else int(linear)
    launches.append(
        Launch(
            recurred,
            parts,
            cell=cell,
            times=lengths.times,
            gate_count=gates,
            backwards=backwards,
            flag=flag,
            added=added,
            added_direction=4 * rows * columns,
            added_time=steps[0],
            added_batch=steps[1],
            weights=weights,
            candidate=candidate,
            y=ends[0],
            y_time=y_steps[0],
            y_batch=y_steps[1],
            y_direction=y_steps[2],
            h_last=ends[1],
            c_last=ends[2] if is_lstm else 0,
            lengths=0 if counted is None else counted,
            peepholes=0 if p is None else step.constant_buffer(padded_rows(p)),
            bias=step.constant_buffer(padded_rows(b[:, columns:][:, -hidden:])),
            tables=step.constant_buffer(table),
            activations=functions,
            zero=zeros(step),
            limit=step.attributes["clip"] or np.inf,
            give_way=GIVE_WAY,
            bailout=step.bailout,
            **begin,
        )
    )
    return launches


def _added(
    step: Step, lengths: Lengths, w: np.ndarray, b: np.ndarray, columns: int, linear: bool
) -> tuple[list[Launch], Buffer]:
    """Products of all inputs with the weights of each direction, the biases added: [directions, rows, columns]."""
    x = step.inputs[0]
    assert x is not None
    rows, directions = lengths.times * lengths.batch, len(w)
    made = step.scratch(4 * (directions * rows * columns + LANES)).view(
        (directions * rows * columns + LANES,), dtype=F32
    )
    weights = step.packed(1, "gates", lambda array: np.stack([product_panels(part.T) for part in array]))
    one = weights.count // directions
    launches = []
    for index in range(directions):
        bias = b[index, :columns] + b[index, columns:]
        if linear:
            bias[2 * lengths.hidden :] = b[index, 2 * lengths.hidden : columns]
        target = made.view((rows, columns), index * rows * columns)
        panel = weights.view((one,), index * one)
        sizes = rows, columns, lengths.size
        launches.append(packed_launch(step, x, panel, target, bias, sizes, (lengths.size, 1)))
    return launches, made
