"""Native DynamicQuantizeLSTM: states are quantized at every step and multiplied by the u8s8 microkernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.jit.address import f32, i32, i64, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inlined, inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ....runtime.simd.memory import fma, maximum
from ....runtime.simd.vector import LANES, select, splat
from ...kernels.gemm.byte_pairs.byte_panels import BYTE_PANELS, column_of_tiles_u8s8
from ...kernels.gemm.microkernel_u8s8 import SIGN_OFFSET
from ...kernels.gemm.register_tile import PANEL
from ...kernels.gemm.requantize import FLOATS, requantize_columns, round_to_byte
from ...quantized.matmul_integer_kernel import (
    Factors,
    PackedBytes,
    for_columns,
    multiplied,
    product_of_bytes,
    zero_terms,
)
from ...quantized.quantize_linear_kernel import dynamically
from ...recurrent.cells_kernel import SIGMOID, TANH, activated, lstm_cell
from ...recurrent.recurrent import DIRECTIONS
from ...recurrent.recurrent_kernel import activation_table, filled_states, initial_state, padded_rows
from ...recurrent.state_product import copied_row
from .dynamic_lstm import dynamic_quantize_lstm
from .rational_activation import SIGMOID_ABOVE, SIGMOID_BELOW, SIGMOID_REACH, TANH_ABOVE, TANH_BELOW, TANH_REACH

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


ROW_OFFSET = 0 if BYTE_PANELS.unsigned_rows else SIGN_OFFSET
"""Difference between codes of states and rows of bytes."""


def _polynomial(coefficients: Sequence[float]) -> Any:
    first, rest = np.float32(coefficients[0]), tuple(np.float32(coefficient) for coefficient in coefficients[1:])

    @inlined
    def polynomial(square: Any) -> Any:
        total = splat(first)
        for coefficient in rest:
            total = fma(total, square, coefficient)
        return total

    return polynomial


_sigmoid_above, _sigmoid_below, _tanh_above, _tanh_below = map(
    _polynomial, (SIGMOID_ABOVE, SIGMOID_BELOW, TANH_ABOVE, TANH_BELOW)
)


@inlined
def _bounded(x: Any, reach: Any) -> Any:
    x = select(x < -reach, -reach, x)
    return select(x > reach, reach, x)


@inner
def _activated(table: Any, index: Any, x: Any, clip: Any) -> Any:
    """As `activated`, with onnxruntime's sigmoid and tanh."""
    kind = f32(table + 12 * index)[0]
    if kind == np.float32(SIGMOID):
        x = _bounded(_bounded(x, clip), np.float32(SIGMOID_REACH))
        y = x * _sigmoid_above(x * x) / _sigmoid_below(x * x) + np.float32(0.5)
        return select(y < np.float32(0), np.float32(0), y)
    if kind == np.float32(TANH):
        x = _bounded(_bounded(x, clip), np.float32(TANH_REACH))
        return x * _tanh_above(x * x) / _tanh_below(x * x)
    return activated(table, index, x, clip)


_row = lstm_cell(_activated, bias_last=True)


@inner
def _rounded_states(
    h: Any, width: Any, rows: Any, hidden: Any, codes: Any, wide: Any, zeros: Any, sums: Any, lengths: Any, turn: Any
) -> Any:
    """States [rows, width] as rows of bytes `wide` apart, their zero point and sums; the scale. Those of ended
    sequences do not count."""
    low, high = np.float32(0), np.float32(0)
    for row in range(rows):
        if turn != 0 and lengths != 0 and turn > i32(lengths)[row]:
            continue
        state = f32(h + 4 * width * row)
        for j in range(hidden):
            low, high = maximum(low, -state[j]), maximum(high, state[j])
    low = -low
    scale = (high - low) / np.float32(255) if high != low else np.float32(1)
    code = round_to_byte(-low / scale, np.float32(0), np.float32(0), np.float32(255))
    zero = np.float32(code)
    for row in range(rows):
        state, line = f32(h + 4 * width * row), u8(codes + wide * row)
        added = np.int32(0)
        for j in range(hidden):
            made = round_to_byte(state[j] / scale, zero, np.float32(0), np.float32(255)) - np.int32(ROW_OFFSET)
            line[j] = made
            added += made
        for j in range(hidden, wide):
            line[j] = 0
        i32(zeros)[row], i32(sums)[row] = code - np.int32(ROW_OFFSET), added
    return scale


@range_kernel
def recurred_bytes(
    times: int,
    batch: int,
    directions: int,
    hidden: int,
    panel_bytes: int,
    backwards: int,
    coupled: int,
    added: Address,
    weights: Address,
    column_zeros: Address,
    column_terms: Address,
    scales: Address,
    y: Address,
    h_first: Address,
    c_first: Address,
    h_last: Address,
    c_last: Address,
    lengths: Address,
    peepholes: Address,
    tables: Address,
    limit: float,
    scratch: Address,
    bailout: Address,
    biases: Address,
    part: int,
    parts: int,
) -> None:
    """All times of a direction; `backwards` has a bit for each, `added` is what inputs add, weights are panels, tables
    the activations."""
    clip = np.float32(limit)
    width, wide, columns = (hidden + LANES - 1) // LANES * LANES, (hidden + 3) // 4 * 4, 4 * hidden
    count = (columns + PANEL - 1) // PANEL
    row_bytes = 4 * (columns + LANES)
    room = batch * (8 * width + wide + 4 * LANES + 8 + row_bytes + 4 * PANEL) + 4 * PANEL
    h = scratch + part * (room + 64)
    c, gates = h + 4 * batch * width, h + 8 * batch * width
    sums, factors = gates + batch * row_bytes, gates + batch * (row_bytes + 4 * PANEL)
    zeros, totals, codes = factors + 4 * PANEL, factors + 4 * PANEL + 4 * batch, factors + 4 * PANEL + 8 * batch
    for row in range(batch):
        if lengths != 0 and (i32(lengths)[row] < 0 or i32(lengths)[row] > times):
            i64(bailout)[0] = 1
    for direction in range(part, directions, parts):
        place = direction * batch * 4 * hidden
        filled_states(h_first, place, 4 * hidden, h, width, batch, hidden)
        filled_states(c_first, place, 4 * hidden, c, width, batch, hidden)
        own = 4 * count * PANEL * direction
        peep = peepholes + direction * 4 * (3 * hidden + LANES) if peepholes != 0 else peepholes
        for turn in range(times):
            scale = _rounded_states(h, width, batch, hidden, codes, wide, zeros, totals, lengths, turn)
            for panel in range(count):
                at = own + 4 * panel * PANEL
                column_of_tiles_u8s8(
                    codes, wide, weights + (direction * count + panel) * panel_bytes, wide // 4, sums, batch
                )
                for j in range(PANEL):
                    f32(factors)[j] = scale * f32(scales + at)[j]
                requantize_columns(
                    sums,
                    batch,
                    min(PANEL, columns - panel * PANEL),
                    FLOATS,
                    zeros,
                    totals,
                    column_zeros + at,
                    column_terms + at,
                    factors,
                    0,
                    0,
                    0,
                    np.float32(0),
                    gates + 4 * panel * PANEL,
                    row_bytes,
                )
            for row in range(batch):
                length: Any = max(0, min(times, np.int64(i32(lengths)[row]))) if lengths != 0 else times
                if turn >= length:
                    if y != 0:
                        out = f32(y + 4 * hidden * ((turn * directions + direction) * batch + row))
                        for j in range(hidden):
                            out[j] = np.float32(0)
                    continue
                time = turn if (backwards >> direction) & 1 == 0 else length - 1 - turn
                now = added + 4 * columns * ((direction * times + time) * batch + row)
                state, bias = h + 4 * width * row, biases + direction * 4 * (columns + LANES)
                _row(
                    now,
                    gates + row_bytes * row,
                    bias,
                    hidden,
                    hidden,
                    state,
                    c + 4 * width * row,
                    peep,
                    tables + 36 * direction,
                    clip,
                    coupled,
                )
                if y != 0:
                    copied_row(state, y + 4 * hidden * ((time * directions + direction) * batch + row), hidden)
        for row in range(batch):
            if h_last != 0:
                copied_row(h + 4 * width * row, h_last + place + 4 * hidden * row, hidden)
            if c_last != 0:
                copied_row(c + 4 * width * row, c_last + place + 4 * hidden * row, hidden)


def _weights(
    step: Step, index: int, scale: int, zero: int, shape: tuple[int, ...]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]] | None:
    """For each direction the sums of the columns of its matrix [depth, columns], their scales and zero points; None
    where one is not constant or does not fit."""
    matrices, scales, zeros = step.inputs[index], step.constant(scale), step.constant(zero)
    if (
        matrices is None
        or not step.is_constant(index)
        or scales is None
        or zeros is None
        or matrices.shape != shape
        or matrices.dtype not in (U8, I8)
    ):
        return None
    count, columns = shape[0], shape[2]
    if scales.shape != zeros.shape or scales.size not in (count, count * columns) or scales.dtype != F32:
        return None
    sums = step.derived_constant(index, "sums", lambda array: array.sum(1, dtype=np.int64))
    rows = zip(sums, scales.reshape(count, -1), zeros.reshape(count, -1), strict=True)
    return [(own, for_columns(factor, columns, 1.0), for_columns(zero, columns, 0.0)) for own, factor, zero in rows]


@native(dynamic_quantize_lstm)
def plan_dynamic_lstm(step: Step) -> Planned:
    """Plan constant weights, biases and peepholes; NumPy computes the rest."""
    x, w, r = step.inputs[:3]
    count = DIRECTIONS.get(step.attributes["direction"], 0)
    if x is None or w is None or r is None or x.dtype != F32 or len(x.shape) != 3 or len(r.shape) != 3:
        return None
    (times, batch, size), hidden = x.shape, r.shape[1]
    columns = 4 * hidden
    inputs, states = (
        _weights(step, 1, 8, 9, (count, size, columns)),
        _weights(step, 2, 10, 11, (count, hidden, columns)),
    )
    firsts = [initial_state(step, index, (count, batch, hidden)) for index in (5, 6)]
    lengths = step.inputs[4]
    table = activation_table(step, count, "LSTM")
    constant = all(step.inputs[index] is None or step.constant(index) is not None for index in (3, 7))
    if (
        inputs is None
        or states is None
        or None in firsts
        or table is None
        or not constant
        or step.attributes["hidden_size"] not in (None, hidden)
    ):
        return None
    b, p = step.constant(3), step.constant(7)
    b = np.zeros((count, 2 * columns), np.float32) if b is None else b
    if b.shape != (count, 2 * columns) or (p is not None and p.shape != (count, 3 * hidden)):
        return None
    if lengths is not None and (lengths.shape != (batch,) or lengths.dtype != np.int32):
        return None
    launches, added = _added(step, x, w.dtype, inputs)
    terms = [zero_terms(sums, hidden, r.dtype, zeros, BYTE_PANELS) for sums, _, zeros in states]
    panels = step.packed(2, "bytes", lambda array: np.stack([BYTE_PANELS.pack(matrix, 1) for matrix in array]))
    width, wide = -(-hidden // LANES) * LANES, -(-hidden // 4) * 4
    room = batch * (8 * width + wide + 4 * LANES + 8 + 4 * (columns + LANES) + 4 * PANEL) + 4 * PANEL + 64
    parts = step.parts(count, times * batch * count * columns * hidden / 32)
    ends = [step.output(index) if step.is_used(index) else 0 for index in range(3)]
    return [
        *launches,
        Launch(
            recurred_bytes,
            parts,
            times=times,
            batch=batch,
            directions=count,
            hidden=hidden,
            panel_bytes=BYTE_PANELS.panel_bytes(wide // 4),
            backwards=2 if count == 2 else int(step.attributes["direction"] == "reverse"),
            coupled=step.attributes["input_forget"],
            added=added,
            weights=panels,
            column_zeros=step.constant_buffer(np.stack([zeros for zeros, _ in terms])),
            column_terms=step.constant_buffer(np.stack([term for _, term in terms])),
            scales=step.constant_buffer(np.stack([scales for _, scales, _ in states]).astype(np.float32)),
            y=ends[0],
            h_first=firsts[0] or 0,
            c_first=firsts[1] or 0,
            h_last=ends[1],
            c_last=ends[2],
            lengths=0 if lengths is None else lengths,
            peepholes=0 if p is None else step.constant_buffer(padded_rows(p)),
            tables=step.constant_buffer(table),
            limit=step.attributes["clip"] or np.inf,
            scratch=step.scratch(parts * room),
            bailout=step.bailout,
            biases=step.constant_buffer(np.pad(b[:, :columns] + b[:, columns:], ((0, 0), (0, LANES)))),
        ),
    ]


def _added(
    step: Step, x: Buffer, dtype: np.dtype[Any], inputs: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[list[Launch], Buffer]:
    """Products of all inputs with the weights of each direction: [directions, rows, columns]."""
    columns, rows = len(inputs[0][0]), x.shape[0] * x.shape[1]
    launches, codes, scale, zero = dynamically(step, x)
    made = step.scratch(4 * (len(inputs) * rows * columns + LANES)).view(
        (len(inputs) * rows * columns + LANES,), dtype=F32
    )
    pack, quads = product_of_bytes.panels.pack, product_of_bytes.quads
    panels = step.packed(1, "bytes", lambda array: np.stack([pack(matrix, quads) for matrix in array]))
    one = panels.count // len(inputs)
    for index, (sums, scales, zeros) in enumerate(inputs):
        factors = Factors(codes, zero, 1, 9, FLOATS, scale)
        target = made.view((rows, columns), index * rows * columns)
        packed = PackedBytes(panels.view((one,), index * one), dtype, sums, scales, zeros)
        launches += multiplied(step, target, factors, packed)
    return launches, made
