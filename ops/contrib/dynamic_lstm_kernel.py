"""Native DynamicQuantizeLSTM: states are rounded to bytes at every time, which is one product of bytes with the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i32, i64, number, u8
from ...runtime.simd import LANES
from ..math.lane_kernel import larger
from ..nn.cell_kernel import lstm_row
from ..nn.recurrent import DIRECTIONS
from ..nn.recurrent_kernel import activation_table, copied_row, filled_states, initial_state, padded_rows
from ..quantized.byte_kernel import MIDDLE, PANEL, byte_panels, column_of_byte_tiles
from ..quantized.linear_kernel import dynamically
from ..quantized.product_kernel import Factors, for_columns, multiplied, zero_terms
from ..quantized.result_kernel import REALS, results, rounded
from .dynamic_lstm import dynamic_quantize_lstm

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


@inner
def _rounded_states(h: Any, width: Any, rows: Any, hidden: Any, codes: Any, wide: Any, zeros: Any, sums: Any) -> Any:
    """States [rows, width] as rows of signed bytes `wide` apart, their zero point and sums; the scale."""
    low, high = np.float32(0), np.float32(0)
    for row in range(rows):
        state = f32(h + 4 * width * row)
        for j in range(hidden):
            low, high = larger(low, -state[j]), larger(high, state[j])
    low = -low
    scale = (high - low) / np.float32(255) if high != low else np.float32(1)
    code = rounded(-low / scale, np.float32(0), np.float32(0), np.float32(255))
    zero = np.float32(code)
    for row in range(rows):
        state, line = f32(h + 4 * width * row), u8(codes + wide * row)
        added = np.int32(0)
        for j in range(hidden):
            made = rounded(state[j] / scale, zero, np.float32(0), np.float32(255)) - np.int32(MIDDLE)
            line[j] = made
            added += made
        for j in range(hidden, wide):
            line[j] = 0
        i32(zeros)[row], i32(sums)[row] = code - np.int32(MIDDLE), added
    return scale


@range_kernel
def recurred_bytes(args: Any, part: Any, parts: Any) -> None:
    """All times of a direction: times, batch, directions, hidden, backwards, input_forget; what inputs add; panels with zero points, terms and
    scales of their columns; outputs; first and last states; lengths, peepholes, activations, clip, scratch, refusal."""
    times, batch, directions, hidden, backwards, coupled = args[0], args[1], args[2], args[3], args[4], args[5]
    added, weights, column_zeros, column_terms, scales, y = args[6], args[7], args[8], args[9], args[10], args[11]
    h_first, c_first, h_last, c_last, lengths, peepholes, tables = args[12], args[13], args[14], args[15], args[16], args[17], args[18]
    clip = np.float32(number(args[19]))
    width, wide, columns = (hidden + LANES - 1) // LANES * LANES, (hidden + 3) // 4 * 4, 4 * hidden
    count = (columns + PANEL - 1) // PANEL
    row_bytes = 4 * (columns + LANES)
    room = batch * (8 * width + wide + 4 * LANES + 8 + row_bytes + 4 * PANEL) + 4 * PANEL
    h = args[20] + part * (room + 64)
    c, gates = h + 4 * batch * width, h + 8 * batch * width
    sums, factors = gates + batch * row_bytes, gates + batch * (row_bytes + 4 * PANEL)
    zeros, totals, codes = factors + 4 * PANEL, factors + 4 * PANEL + 4 * batch, factors + 4 * PANEL + 8 * batch
    for row in range(batch):
        if lengths != 0 and (i32(lengths)[row] < 0 or i32(lengths)[row] > times):
            i64(args[21])[0] = 1
    for direction in range(part, directions, parts):
        place = direction * batch * 4 * hidden
        filled_states(h_first, place, 4 * hidden, h, width, batch, hidden)
        filled_states(c_first, place, 4 * hidden, c, width, batch, hidden)
        own = 4 * count * PANEL * direction
        peep = peepholes + direction * 4 * (3 * hidden + LANES) if peepholes != 0 else peepholes
        for turn in range(times):
            time = turn if (backwards >> direction) & 1 == 0 else times - 1 - turn
            scale = _rounded_states(h, width, batch, hidden, codes, wide, zeros, totals)
            for panel in range(count):
                at = own + 4 * panel * PANEL
                column_of_byte_tiles(codes, wide, weights + (direction * count + panel) * wide * PANEL, wide // 4, sums, batch)
                for j in range(PANEL):
                    f32(factors)[j] = scale * f32(scales + at)[j]
                results(
                    sums, batch, min(PANEL, columns - panel * PANEL), REALS, zeros, totals, column_zeros + at, column_terms + at, factors, 0, 0, 0,
                    np.float32(0), gates + 4 * panel * PANEL, row_bytes,
                )
            for row in range(batch):
                out = y + 4 * hidden * ((time * directions + direction) * batch + row)
                if lengths != 0 and time >= i32(lengths)[row]:
                    if y != 0:
                        for j in range(hidden):
                            f32(out)[j] = np.float32(0)
                    continue
                now = added + 4 * columns * ((direction * times + time) * batch + row)
                table = tables + 36 * direction
                lstm_row(now, gates + row_bytes * row, hidden, h + 4 * width * row, c + 4 * width * row, peep, table, clip, coupled)
                if y != 0:
                    copied_row(h + 4 * width * row, out, hidden)
        for row in range(batch):
            if h_last != 0:
                copied_row(h + 4 * width * row, h_last + place + 4 * hidden * row, hidden)
            if c_last != 0:
                copied_row(c + 4 * width * row, c_last + place + 4 * hidden * row, hidden)


def _weights(step: Step, index: int, scale: int, zero: int, shape: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]] | None:
    """For each direction a matrix [depth, columns] with scales and zero points of its columns; None where one is not constant or does not fit."""
    matrices, scales, zeros = step.constant(index), step.constant(scale), step.constant(zero)
    if matrices is None or scales is None or zeros is None or matrices.shape != shape or matrices.dtype not in (U8, I8):
        return None
    count, columns = shape[0], shape[2]
    if scales.shape != zeros.shape or scales.size not in (count, count * columns) or scales.dtype != F32:
        return None
    pairs = zip(matrices, scales.reshape(count, -1), zeros.reshape(count, -1), strict=True)
    return [(matrix, for_columns(factor, columns, 1.0), for_columns(zero, columns, 0.0)) for matrix, factor, zero in pairs]


@native(dynamic_quantize_lstm)
def plan_dynamic_lstm(step: Step) -> Planned:
    """Constant weights, biases and peepholes."""
    x, w, r = step.inputs[:3]
    count = DIRECTIONS.get(step.attributes["direction"], 0)
    if x is None or w is None or r is None or x.dtype != F32 or len(x.shape) != 3 or len(r.shape) != 3:
        return None
    (times, batch, size), hidden = x.shape, r.shape[1]
    columns = 4 * hidden
    inputs, states = _weights(step, 1, 8, 9, (count, size, columns)), _weights(step, 2, 10, 11, (count, hidden, columns))
    firsts = [initial_state(step, index, (count, batch, hidden)) for index in (5, 6)]
    lengths = step.inputs[4]
    table = activation_table(step, count, "LSTM")
    constant = all(step.inputs[index] is None or step.constant(index) is not None for index in (3, 7))
    if inputs is None or states is None or None in firsts or table is None or not constant or step.attributes["hidden_size"] not in (None, hidden):
        return None
    b, p = step.constant(3), step.constant(7)
    b = np.zeros((count, 2 * columns), np.float32) if b is None else b
    if b.shape != (count, 2 * columns) or (p is not None and p.shape != (count, 3 * hidden)):
        return None
    if lengths is not None and (lengths.shape != (batch,) or lengths.dtype != np.int32):
        return None
    launches, added = _added(step, x, inputs, b)
    terms = [zero_terms(matrix, zeros) for matrix, _, zeros in states]
    panels = step.packed(2, "bytes", lambda array: np.stack([byte_panels(matrix) for matrix in array]))
    width, wide = -(-hidden // LANES) * LANES, -(-hidden // 4) * 4
    room = batch * (8 * width + wide + 4 * LANES + 8 + 4 * (columns + LANES) + 4 * PANEL) + 4 * PANEL + 64
    parts = step.parts(count, times * batch * count * columns * hidden / 32)
    ends = [step.output(index) if step.wanted(index) else 0 for index in range(3)]
    arguments = (
        times, batch, count, hidden, 2 if count == 2 else int(step.attributes["direction"] == "reverse"), step.attributes["input_forget"], added,
        panels,
        step.held(np.stack([zeros for zeros, _ in terms])), step.held(np.stack([term for _, term in terms])),
        step.held(np.stack([scales for _, scales, _ in states]).astype(np.float32)), ends[0], firsts[0] or 0, firsts[1] or 0, ends[1], ends[2],
        0 if lengths is None else lengths, 0 if p is None else step.held(padded_rows(p)), step.held(table), float(step.attributes["clip"] or np.inf),
        step.scratch(parts * room), step.refusal,
    )
    return [*launches, Launch(recurred_bytes, arguments, parts)]


def _added(
    step: Step, x: Buffer, inputs: list[tuple[np.ndarray, np.ndarray, np.ndarray]], b: np.ndarray
) -> tuple[list[Launch], Buffer]:
    """Products of all inputs with the weights of each direction, the biases added: [directions, rows, columns]."""
    columns, rows = inputs[0][0].shape[1], x.shape[0] * x.shape[1]
    launches, codes, scale, zero = dynamically(step, x)
    made = step.scratch(4 * (len(inputs) * rows * columns + LANES)).view((len(inputs) * rows * columns + LANES,), dtype=F32)
    panels = step.packed(1, "bytes", lambda array: np.stack([byte_panels(matrix) for matrix in array]))
    one = panels.count // len(inputs)
    for index, (matrix, scales, zeros) in enumerate(inputs):
        factors = Factors(codes, zero, 1, 9, REALS, scale, reals=b[index, :columns] + b[index, columns:])
        target = made.view((rows, columns), index * rows * columns)
        launches += multiplied(step, target, factors, matrix, panels.view((one,), index * one), scales, zeros)
    return launches, made
