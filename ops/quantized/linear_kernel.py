"""Native QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear between f32 and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i8, i32, share, u8
from ...runtime.simd import LANES, splat
from ..contrib.quantize_linear import dequantize_linear as contrib_dequantize
from ..contrib.quantize_linear import quantize_linear as contrib_quantize
from ..math.lane_kernel import larger, largest, load_single
from .dynamic import dynamic_quantize_linear
from .linear import dequantize_linear, quantize_linear
from .result_kernel import byte_at, rounded

F32 = np.dtype(np.float32)
KINDS = {"uint8": 0, "int8": 1, "int32": 2}
CHUNK = 16384
"""Elements that one unit of work looks at."""


@range_kernel
def quantized_rows(args: Any, part: Any, parts: Any) -> None:
    """Values, bytes, rows, elements of a row, scales and zero points of `count` rows in turn, whether bytes are signed."""
    x, y, rows, length, scales, zeros, count, signed = f32(args[0]), args[1], args[2], args[3], f32(args[4]), args[5], args[6], args[7]
    low, high = (np.float32(-128), np.float32(127)) if signed != 0 else (np.float32(0), np.float32(255))
    pieces = (length + CHUNK - 1) // CHUNK
    first, last = share(rows * pieces, part, parts)
    for unit in range(first, last):
        row, begin = unit // pieces, unit % pieces * CHUNK
        scale, base = scales[row % count], row * length
        zero = np.float32(byte_at(zeros + row % count if zeros != 0 else zeros, signed))
        if signed != 0:
            for j in range(base + begin, base + min(length, begin + CHUNK)):
                i8(y)[j] = rounded(x[j] / scale, zero, low, high)
        else:
            for j in range(base + begin, base + min(length, begin + CHUNK)):
                u8(y)[j] = rounded(x[j] / scale, zero, low, high)


@range_kernel
def real_rows(args: Any, part: Any, parts: Any) -> None:
    """Integers, values, rows, elements of a row, scales and zero points of `count` rows in turn, kind of the integers."""
    x, y, rows, length, scales, zeros, count, kind = args[0], f32(args[1]), args[2], args[3], f32(args[4]), args[5], args[6], args[7]
    pieces = (length + CHUNK - 1) // CHUNK
    first, last = share(rows * pieces, part, parts)
    for unit in range(first, last):
        row, begin = unit // pieces, unit % pieces * CHUNK
        scale, base = scales[row % count], row * length
        end = base + min(length, begin + CHUNK)
        if kind == 2:
            zero = i32(zeros)[row % count] if zeros != 0 else np.int32(0)
            for j in range(base + begin, end):
                y[j] = np.float32(np.int32(i32(x)[j] - zero)) * scale
            continue
        zero = byte_at(zeros + row % count if zeros != 0 else zeros, kind)
        if kind == 1:
            for j in range(base + begin, end):
                y[j] = np.float32(np.int32(i8(x)[j]) - zero) * scale
        else:
            for j in range(base + begin, end):
                y[j] = np.float32(np.int32(u8(x)[j]) - zero) * scale


@range_kernel
def extremes(args: Any, part: Any, parts: Any) -> None:
    """Values, how many; for each chunk the smallest and the largest, zero among them; NaN where one is NaN."""
    x, count, found = f32(args[0]), args[1], f32(args[2])
    chunks = (count + CHUNK - 1) // CHUNK
    first, last = share(chunks, part, parts)
    for chunk in range(first, last):
        begin, end = chunk * CHUNK, min(count, chunk * CHUNK + CHUNK)
        whole = begin + (end - begin) // LANES * LANES
        below, above = splat(np.float32(0)), splat(np.float32(0))
        for j in range(begin, whole, LANES):
            values = load_single(args[0] + 4 * j)
            below, above = larger(below, -values), larger(above, values)
        low, high = largest(below), largest(above)
        for j in range(whole, end):
            low, high = larger(low, -x[j]), larger(high, x[j])
        found[2 * chunk], found[2 * chunk + 1] = -low, high


@range_kernel
def quantized_between(args: Any, part: Any, parts: Any) -> None:
    """Values, how many, extremes of the chunks; bytes, scale and zero point."""
    x, count, found, y, scale_at, zero_at = f32(args[0]), args[1], f32(args[2]), u8(args[3]), f32(args[4]), u8(args[5])
    chunks = (count + CHUNK - 1) // CHUNK
    low, high = np.float32(0), np.float32(0)
    for chunk in range(chunks):
        one, other = found[2 * chunk], found[2 * chunk + 1]
        low = one if one < low or one != one else low
        high = other if other > high or other != other else high
    scale = (high - low) / np.float32(255) if high != low else np.float32(1)
    code = rounded(-low / scale, np.float32(0), np.float32(0), np.float32(255))
    if part == 0:
        scale_at[0], zero_at[0] = scale, code
    zero = np.float32(code)
    first, last = share(chunks, part, parts)
    for j in range(first * CHUNK, min(count, last * CHUNK)):
        y[j] = rounded(x[j] / scale, zero, np.float32(0), np.float32(255))


def dynamically(step: Step, x: Buffer, outputs: tuple[Buffer | None, ...] = (None, None, None)) -> tuple[list[Launch], Buffer, Buffer, Buffer]:
    """Launches that quantize, and where codes, scale and zero point are."""
    codes, scale, zero = outputs
    codes = codes or step.scratch(x.count).view(x.shape)
    scale, zero = scale or step.scratch(4).view((), dtype=F32), zero or step.scratch(1).view(())
    chunks = -(-x.count // CHUNK)
    found = step.scratch(8 * chunks)
    launches = [
        Launch(extremes, (x, x.count, found), step.parts(chunks, x.count / 4)),
        Launch(quantized_between, (x, x.count, found, codes, scale, zero), step.parts(chunks, x.count / 2)),
    ]
    return launches, codes, scale, zero


@native(dynamic_quantize_linear)
def plan_dynamic(step: Step) -> Planned:
    """f32."""
    x = step.inputs[0]
    if x is None or x.dtype != F32:
        return None
    outputs = tuple(step.output(index) if step.wanted(index) else None for index in range(3))
    return dynamically(step, x, outputs)[0]


def _rows(step: Step, x: Buffer, dtype: np.dtype[Any]) -> tuple[Buffer | int, ...] | None:
    """Rows, elements of a row, scales, zero points and their number."""
    scale = step.inputs[1]
    zero = step.inputs[2] if len(step.inputs) > 2 else None
    axis = step.attributes["axis"] if step.attributes["axis"] is not None else 1
    if scale is None or scale.dtype != F32 or step.attributes.get("block_size"):
        return None
    if zero is not None and (zero.dtype != dtype or zero.count != scale.count):
        return None
    if scale.count == 1:
        return (1, x.count, scale, 0 if zero is None else zero, 1)
    if not -len(x.shape) <= axis < len(x.shape) or scale.shape != (x.shape[axis],):
        return None
    length = x.strides[axis % len(x.shape)]
    return (x.count // length, length, scale, 0 if zero is None else zero, scale.count)


@native(quantize_linear, contrib_quantize)
def plan_quantize(step: Step) -> Planned:
    """f32 to bytes, in f32."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype != F32 or y.dtype.name not in ("uint8", "int8") or step.attributes.get("precision", 0) not in (0, 1):
        return None
    rows = _rows(step, x, y.dtype)
    return None if rows is None else Launch(quantized_rows, (x, y, *rows, KINDS[y.dtype.name]), step.parts(_units(rows), x.count / 2))


@native(dequantize_linear, contrib_dequantize)
def plan_dequantize(step: Step) -> Planned:
    """Bytes and i32 to f32."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype.name not in KINDS or y.dtype != F32:
        return None
    rows = _rows(step, x, x.dtype)
    return None if rows is None else Launch(real_rows, (x, y, *rows, KINDS[x.dtype.name]), step.parts(_units(rows), x.count / 2))


def _units(rows: tuple[Buffer | int, ...]) -> int:
    count, length = rows[:2]
    assert isinstance(count, int)
    assert isinstance(length, int)
    return count * -(-length // CHUNK)
